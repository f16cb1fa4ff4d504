# make test and make demo set everything up by themselves; they need Python 3.11, pip, make and gcc.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: test demo lint types clean

# One stamp per set of extras; installed again when what it is made from changes.
$(VENV)/.base: pyproject.toml constraints.txt setup.py src/dsfcnn/kernels/bank.py $(wildcard src/dsfcnn/kernels/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(PIP) --editable '.[test]'
	touch $@

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

$(VENV)/.wsi: $(VENV)/.base
	$(PIP) --editable '.[wsi]'
	touch $@

# Pictures of the basis and of a layer's filters, how exactly a small network turns with its input, and nuclei on a real slide.
demo: $(VENV)/.wsi
	$(BIN)/dsfcnn filters --out demo/filters --overwrite
	$(BIN)/python benchmarks/equivariance.py --seeds 3
	$(BIN)/python examples/demo.py --out demo

clean:
	rm -rf $(VENV) build demo src/*.egg-info
