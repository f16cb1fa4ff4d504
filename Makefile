# make test and make demo set everything up by themselves; they need Python 3.11, pip, make and gcc.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: test test-browser viewer demo lint types clean

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

# OpenSeadragon, so that it is part of what is installed or built from here; dsfcnn view --fetch does the same for what is installed.
VENDOR := src/dsfcnn/viewer/page/vendor
viewer: $(VENV)/.base
	$(BIN)/python -m dsfcnn.viewer.openseadragon

# The viewer in a real browser: needs Debian's chromium and chromium-driver. Screenshots go to build/screenshots.
test-browser: $(VENV)/.browser viewer
	$(BIN)/python -m pytest tests/browser $(CHOICE)

$(VENV)/.browser: $(VENV)/.test
	$(PIP) --editable '.[browser]'
	touch $@

$(VENV)/.wsi: $(VENV)/.base
	$(PIP) --editable '.[wsi]'
	touch $@

# Pictures of the basis and of a layer's filters, how exactly a small network turns with its input, and nuclei on a real slide.
demo: $(VENV)/.wsi
	$(BIN)/dsfcnn filters --out demo/filters --overwrite
	$(BIN)/python benchmarks/equivariance.py --seeds 3
	$(BIN)/python examples/demo.py --out demo

clean:
	rm -rf $(VENV) build demo site src/*.egg-info $(VENDOR)
