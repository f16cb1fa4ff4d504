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

# The page's library from npm, which compares the package with the hash in the lock file. No script of a package is run.
VENDOR := src/dsfcnn/viewer/page/vendor
viewer: $(VENDOR)/openseadragon.min.js

$(VENDOR)/openseadragon.min.js: npm/package.json npm/package-lock.json
	npm ci --prefix npm --ignore-scripts --no-audit --no-fund
	mkdir -p $(VENDOR)
	cp npm/node_modules/openseadragon/LICENSE.txt $(VENDOR)/openseadragon-LICENSE.txt
	cp npm/node_modules/openseadragon/build/openseadragon/openseadragon.min.js $@

# The viewer in a real browser: needs npm and Debian's chromium and chromium-driver. Screenshots go to build/screenshots.
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
	rm -rf $(VENV) build demo site src/*.egg-info npm/node_modules $(VENDOR)
