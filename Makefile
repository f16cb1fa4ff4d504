# make test and make demo set everything up by themselves; they need Python 3.11, pip, make and gcc.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: test demo lint types clean

# One stamp per set of extras; installed again when what it is made from changes.
$(VENV)/.base: pyproject.toml constraints.txt setup.py src/dsfcnn/kernels/gconv.c src/dsfcnn/kernels/bank.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(PIP) --editable '.[test]'
	touch $@

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The site, in site/; a warning is an error. To read it: python -m http.server --directory site
.PHONY: docs
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(VENV)/.docs: $(VENV)/.base
	$(PIP) --editable '.[docs]'
	touch $@

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

# Pictures of the basis and of a layer's filters, and how exactly a small network turns with its input.
demo: $(VENV)/.base
	$(BIN)/dsfcnn filters --out demo --overwrite
	$(BIN)/python benchmarks/equivariance.py --seeds 3

clean:
	rm -rf $(VENV) build demo site src/*.egg-info
