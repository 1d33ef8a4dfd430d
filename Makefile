PYTHON ?= python3

.PHONY: demo test coverage test-long lint docs docs-links clean

demo:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -e .
	.venv/bin/python -m bnp_models.datasets demo --adults --rows 1000 --seed 0
	.venv/bin/bnp-models risk demo/sample.csv --levels demo/levels.csv --population-size 228421 --warmup 500 --draws 2000 --thin 3 --max-tau1 30 --out demo --force
	.venv/bin/python -m bnp_models.datasets demo --compare

test:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[test]'
	.venv/bin/python -m pytest -m "not long" -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# The same tests, and the lines and branches that they do not run.
coverage: export PYTEST_ADDOPTS = --cov --cov-context=test --cov-report=term-missing:skip-covered --junitxml=build/tests.xml
coverage: test

test-long:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[test]'
	.venv/bin/python -m pytest -m long -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

lint: .venv/bin/ruff
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/mypy

docs: .venv/bin/sphinx-build
	.venv/bin/sphinx-build -q -W --keep-going -n -c docs -d build/doctrees . build/docs

docs-links: .venv/bin/sphinx-build
	.venv/bin/sphinx-build -q -b linkcheck -c docs -d build/doctrees . build/links

# Where they are not installed yet.
.venv/bin/ruff:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[test]'

.venv/bin/sphinx-build:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet -e '.[docs]'

clean:
	rm -rf .venv demo build dist
