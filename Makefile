# A machine needs Python 3.11 and make; everything else is installed into .venv.
PYTHON ?= python3.11
EXTRA ?= $(if $(filter Darwin,$(shell uname -s)),,cpu)

# What `make bench` measures: a trained checkpoint beside the checkout if there is one, else the demo model.
MODEL ?= $(wildcard ../shared/checkpoints/qwen3_5)

comma := ,
BIN := .venv/bin
STAMP := .venv/installed
LINKED := .venv/linked/mtplx
PACKAGES := contracts forge kernels runtime

.PHONY: demo test test-all check bench linked

demo: $(STAMP)
	$(BIN)/python examples/forge.py .demo
	$(BIN)/python examples/demo.py .demo/demo-model-optimized-quality

test: $(STAMP)
	$(BIN)/python -m pytest -q

test-all: check
	$(BIN)/python -m pytest -m ""

check: $(STAMP) linked
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=$(dir $(LINKED)) $(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m mtplx bench speed $(if $(MODEL),--model $(MODEL)) --compare mlx-lm --json

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(if $(EXTRA),$(EXTRA)$(comma))dev]'
	touch $@

# mypy and import-linter look for modules in folders and know nothing of the import hook of an
# editable install, so the package is laid out for them once more, as links.
linked:
	@mkdir -p $(LINKED)
	@find $(LINKED) -type l -exec rm {} +
	@ln -s $(CURDIR)/mtplx_cli/[a-z_]* $(addprefix $(CURDIR)/,$(PACKAGES)) $(LINKED)
