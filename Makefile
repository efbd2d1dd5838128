# `make demo` and `make test` each make what they need: a virtual environment with plain pip.
# `constraints.txt` keeps torch on its CPU build; see the README for a GPU.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.lastgood-installed

.PHONY: demo test lint format docs nightly clean help

help:
	@echo "make demo     break a small training job on purpose and watch it recover"
	@echo "make test     run the tests"
	@echo "make lint     run the linters and the type checker"
	@echo "make format   format the code"
	@echo "make docs     write the generated pages of docs/"
	@echo "make nightly  run the long tests"
	@echo "make clean    remove the virtual environment"

demo: $(STAMP)
	$(BIN)/lastgood demo

# loadfile: what a file sets up once (a supervised job of four ranks) is not set up again by the second worker.
test: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile -m 'not nightly'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/pytest -q tests/docs --update-golden

nightly: $(STAMP)
	LASTGOOD_HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -n 2 --dist loadfile

clean:
	rm -rf $(VENV)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "lastgood needs Python 3.11 or newer; found: $$($(PYTHON) --version 2>&1)"; \
	  echo "name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } || { \
	  rm -rf $(VENV); \
	  echo "a virtual environment could not be made; on Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@echo "installing lastgood into $(VENV) (about 1.5 GB, a few minutes the first time)"
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[torch,analysis,sim,frameworks,dev]"
	@touch $@
