# Every target works alone on a fresh clone with nothing but make and Python 3.11 to 3.13:
# it creates .venv, installs what it needs, and is fast the second time.
#   make demo PYTHON=python3.12     another interpreter
#   make demo EXTRA=cuda12          with an extra of pyproject.toml: cuda12, cuda13, tpu
#   make test LOCK=newest           not the locked versions of requirements/locked.txt, but the newest, or lowest, allowed ones
#   make test WORKERS=4             test processes (default: one per core, at most 8)
#   make test-all PART=3/16         the third of sixteen parts of all tests
#   make test-all MARKS=slow        the slow tests only
#   make accelerators OPTIONS="--only ppo --targets h100"   some of the programs
#   make test-suites SUITES="navix pgx"   some of the suites that the extra test leaves out
#   make bench NAMES="train envs"   benchmarks (default: all of them)
#   make study NAME=pathworld OPTIONS="--out runs/x"   a study (default: list them)

.DEFAULT_GOAL := help
SHELL := /bin/bash

LOCK ?= locked
VENV ?= .venv$(if $(filter-out locked,$(LOCK)),-$(LOCK))
EXTRA ?=
WORKERS ?= auto
PART ?=
MARKS ?=
NAMES ?=
NAME ?=
SUITES ?= navix pgx craftax targetgym octax popgym_arcade electric_motor
OPTIONS ?=
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1 \
	&& { echo $$python; exit; }; done; echo python3)

BIN := $(VENV)/bin
comma := ,
stamp = $(VENV)/.installed-$(1)$(if $(EXTRA),$(comma)$(EXTRA))
# Installs $(2) with the interpreter $(1): a line every three seconds in place of pip's own, which go to a log, whose end
# is shown where pip fails.
define pip
log=$(VENV)/install.log; SECONDS=0; $(1) -m pip install --disable-pip-version-check --no-input --progress-bar off $(2) >$$log 2>&1 & \
	job=$$!; trap 'kill $$job' INT TERM; \
	while sleep 3; kill -0 $$job 2>/dev/null; do \
		printf '%5d s  %s\n' $$SECONDS "$$(grep -E '^ *(Collecting|Downloading|Building|Preparing|Installing) ' $$log | tail -n 1 | sed 's/^ *//' | cut -c -64 | grep . || echo starting pip)"; \
	done; \
	wait $$job || { grep -v '^WARNING: Location' $$log | tail -n 20 >&2; echo "pip failed; its output is in $$log." >&2; exit 1; }
endef

# Install jaxrl with the extras $(1) in one of three choices of versions.
define install-locked
	@$(BIN)/python requirements/versions.py locked $(1) >$(VENV)/locked.txt
	@($(call pip,$(BIN)/python,--no-deps --require-hashes --requirement $(VENV)/locked.txt)) || { \
		grep -q 'No matching distribution' $(VENV)/install.log && [ -z "$$GITHUB_ACTIONS" ] || exit 1; \
		echo "A version of requirements/locked.txt is not available here: the newest allowed ones are installed." >&2; }
	@$(call pip,$(BIN)/python,--editable '.[$(1)]')
endef
define install-newest
	@$(call pip,$(BIN)/python,--upgrade --upgrade-strategy eager --editable '.[$(1)]')
endef
define install-lowest
	@$(BIN)/python requirements/versions.py lowest $(1) >$(VENV)/lowest.txt
	@$(call pip,$(BIN)/python,--constraint $(VENV)/lowest.txt --editable '.[$(1)]')
endef
ifeq ($(filter locked newest lowest,$(LOCK)),)
$(error LOCK is locked, newest or lowest, but it is '$(LOCK)')
endif

.PHONY: help demo test test-all part torture mutants accelerators test-rliable test-sb3 test-suites bench study lint lint-workflows \
	format notebook docs release-check lock clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(call stamp,video)  ## PPO on CartPole under three discounts, 64 seeds each, in one call; a picture, a film
	@$(BIN)/jaxrl train ppo cartpole --seeds 64 --env-steps 200000 --evals 8 --eval-episodes 16 --eval-at-start --force \
		--out runs/demo --hparams.discount exp:gamma=0.98 beta:mu=0.98,eta=0.5 hyperbolic:k=0.020408163
	@$(BIN)/jaxrl plot runs/demo
	@$(BIN)/jaxrl render runs/demo --at discount=beta:mu=0.98,eta=0.5 --out runs/demo/cartpole.mp4
	@printf '%s\n' '' 'The table is above; the rest is in runs/demo:' \
		'  return.png    learning curves with 95 % intervals' \
		'  cartpole.mp4  an episode of one trained policy' \
		'  metrics.csv   every number' '' 'Next:' \
		'  $(BIN)/jaxrl report runs/demo --out runs/demo/report.html' \
		'  $(BIN)/jaxrl train ppo pendulum --seeds 8 --out runs/pendulum' \
		'  $(BIN)/jaxrl envs'

test: $(call stamp,test)  ## the fast tests
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist loadscope

test-all: $(call stamp,test$(comma)playground) $(VENV)-rliable/.installed  ## every test, or one part of them: PART=3/16
	JAXRL_RLIABLE=$(abspath $(VENV)-rliable/bin/python) $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 \
		$(if $(PART),--part=$(PART) --dist worksteal,--dist loadscope) -m "$(MARKS)"

# A shallow clone does not know how many commits there are.
part:  ## the part of all tests that belongs to this commit; sixteen commits in a row have all of them
	@if [ "$$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then number=$$(git rev-list --count HEAD); \
	else number=$$((0x0$$(git rev-parse --short=8 HEAD 2>/dev/null))); fi; echo $$((number % 16 + 1))/16

torture: $(call stamp,test)  ## kills, signals, damages, odd names, meetings and command lines at random, all seeds fixed
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal tests/torture

mutants: $(call stamp,test)  ## plant faults in a copy, each of which a fast test must catch; NAMES= takes areas and faults
	$(BIN)/python tests/mutants --workers $(WORKERS) --names $(NAMES)

accelerators: $(VENV)-accelerators/.installed  ## compile for GPUs and TPUs that are absent, and the page of the docs (an hour, 4 GB)
	JAX_PLATFORMS=cpu $(VENV)-accelerators/bin/python bench/accelerators.py $(OPTIONS)
	JAX_PLATFORMS=cpu $(VENV)-accelerators/bin/python -m pytest -q -m "" tests/runtime/test_compilers.py

test-rliable: $(call stamp,test) $(VENV)-rliable/.installed  ## statistics compared with rliable
	JAXRL_RLIABLE=$(abspath $(VENV)-rliable/bin/python) $(BIN)/python -m pytest -m "" tests/results/test_rliable.py

test-sb3: $(VENV)-sb3/.installed-test  ## Stable-Baselines3's checker and PPO on jaxrl's environments (PyTorch, a quarter of an hour)
	$(VENV)-sb3/bin/python -m pytest -m slow -s tests/envs/test_stable_baselines.py

test-suites: $(SUITES:%=$(VENV)-suite-%/.installed)  ## suites that the extra test leaves out, each in an environment of its own
	$(foreach suite,$(SUITES),$(VENV)-suite-$(suite)/bin/python -m pytest -m "" tests/suites/test_$(suite).py &&) true

REJAX := $(VENV)-rejax/.installed$(if $(EXTRA),-$(subst $(comma),-,$(EXTRA)))
REJAX012 := $(subst -rejax,-rejax012,$(REJAX))
# Environments of the peers that the named benchmarks compare with, all if none is named.
asked = $(if $(NAMES),$(filter $(1),$(NAMES)),all)
rivals = $(if $(call asked,train compile_time off_policy),$(REJAX)) \
	$(if $(call asked,off_policy),$(REJAX012) $(VENV)-sbx/.installed) $(if $(call asked,train),$(VENV)-sb3/.installed) \
	$(if $(call asked,crowd learned_crowd bandits),$(VENV)-peers/.installed) \
	$(if $(call asked,physical),$(VENV)-suite-electric_motor/.installed)

bench: $(call stamp,test) $(rivals)  ## all benchmarks, compared with their peers, and the table of docs/results
	$(BIN)/python -m bench $(NAMES) --rejax $(VENV)-rejax/bin/python --rejax012 $(VENV)-rejax012/bin/python \
		--sbx $(VENV)-sbx/bin/python --sb3 $(VENV)-sb3/bin/python --peers $(VENV)-peers/bin/python \
		--gem $(VENV)-suite-electric_motor/bin/python

study: $(call stamp,test)  ## a study of docs/results by its NAME, with OPTIONS; without a name, their list
	$(BIN)/python -m bench.studies $(NAME) $(OPTIONS)

lint: $(call stamp,dev) lint-workflows  ## ruff and pyright, and what lint-workflows does
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

lint-workflows: $(call stamp,dev)  ## the files of .github and CITATION.cff, by their schemas, and zizmor
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --quiet --offline --pedantic --strict-collection .github

format: $(call stamp,dev)  ## let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebook: $(call stamp,test)  ## run the notebooks at small size
	JAXRL_NOTEBOOK_SMALL=1 $(BIN)/python -m pytest --nbmake --nbmake-timeout=1200 -W ignore notebooks

docs: $(call stamp,docs)  ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release-check: $(call stamp,dev)  ## build wheel and source distribution in dist, test them, and use each in an empty environment
	rm -rf dist
	$(BIN)/python -m build
	mkdir -p build
	git archive --format=tar.gz --prefix=benchmark/ --output=build/benchmark.tar.gz HEAD:bench/benchmark
	$(BIN)/python -m pytest -m "" tests/release

# uv finds versions for every platform and Python at once; OPTIONS=--upgrade takes newer ones than those in the file.
lock: $(VENV)-lock/.installed  ## write requirements/locked.txt, after a change of pyproject.toml; OPTIONS=--upgrade
	$(VENV)-lock/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command 'make lock' --extra dev --extra playground $(OPTIONS) pyproject.toml \
		--output-file requirements/locked.txt

clean:  ## remove the virtual environment, caches and what runs wrote
	rm -rf $(VENV) $(VENV)-* .pytest_cache .ruff_cache .hypothesis build dist runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
		echo "jaxrl takes Python 3.11, 3.12 or 3.13, but $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
			"name another one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@echo 'Creating $(VENV) ...'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# rejax $(2) in the environment $(1): it needs a gymnax that jaxrl cannot have, on the same JAX and the same devices.
define rejax
$(PYTHON) -m venv $(1)
	@$(call pip,$(1)/bin/python,rejax==$(2) gymnax==0.0.9 six \
		"jax$(if $(EXTRA),[$(EXTRA)])==$$($(BIN)/python -c 'import jax; print(jax.__version__)')")
	@touch '$@'
endef

$(REJAX): $(call stamp,test)
	$(call rejax,$(VENV)-rejax,0.1.3)

$(REJAX012): $(call stamp,test)
	$(call rejax,$(VENV)-rejax012,0.1.2)

# rliable's own dependencies (statsmodels) fail to import with the pandas that jaxrl has.
$(VENV)-rliable/.installed: $(call stamp,test)
	$(PYTHON) -m venv $(VENV)-rliable
	@$(call pip,$(VENV)-rliable/bin/python,rliable==1.2.0 'pandas<3')
	@touch '$@'

# Stable-Baselines3 brings torch, which nothing else here needs; SBX brings Stable-Baselines3.
$(VENV)-sbx/.installed: $(call stamp,test)
	$(PYTHON) -m venv $(VENV)-sbx
	@$(call pip,$(VENV)-sbx/bin/python,sbx-rl==0.28.0)
	@touch '$@'

$(VENV)-sb3/.installed: $(call stamp,test)
	$(PYTHON) -m venv $(VENV)-sb3
	@$(call pip,$(VENV)-sb3/bin/python,stable-baselines3==2.9.2)
	@touch '$@'

$(VENV)-sb3/.installed-test: $(VENV)-sb3/.installed
	@$(call pip,$(VENV)-sb3/bin/python,--editable '.[gymnasium]' hypothesis pytest)
	@touch '$@'

# The compilers for GPUs and TPUs, on the JAX of .venv.
$(VENV)-accelerators/.installed: $(call stamp,test)
	$(PYTHON) -m venv $(VENV)-accelerators
	@$(call pip,$(VENV)-accelerators/bin/python,--editable '.[cuda12$(comma)tpu$(comma)evolution]' hypothesis pytest \
		"jax==$$($(BIN)/python -c 'import jax; print(jax.__version__)')")
	@touch '$@'

$(VENV)-peers/.installed: $(call stamp,test)
	$(PYTHON) -m venv $(VENV)-peers
	@$(call pip,$(VENV)-peers/bin/python,jupedsim==1.4.2 pysocialforce==1.1.2 mabwiser==2.7.4)
	@$(call pip,$(VENV)-peers/bin/python,--no-deps SMPyBandits==0.9.7)
	@touch '$@'

# The stem is the extra of a suite. POPGym Arcade without its dependencies, which replace gymnax.
$(VENV)-suite-%/.installed: pyproject.toml | $(BIN)/python
	@$(PYTHON) -m venv $(VENV)-suite-$*
	@$(call pip,$(VENV)-suite-$*/bin/python,--editable $(if $(filter electric_motor,$*),. gym-electric-motor==3.0.3,'.[$(subst _,-,$*)]') \
		hypothesis pytest pytest-xdist)
	$(if $(filter popgym_arcade,$*),$(VENV)-suite-$*/bin/pip install -q --no-deps popgym-arcade==0.0.7)
	@touch '$@'

$(VENV)-lock/.installed: | $(BIN)/python
	@$(PYTHON) -m venv $(VENV)-lock
	@$(call pip,$(VENV)-lock/bin/python,uv==0.13.9)
	@touch '$@'

# The stem is the list of extras; the stamp makes the second time fast.
$(VENV)/.installed-%: pyproject.toml requirements/locked.txt | $(BIN)/python
	@echo "Installing jaxrl[$*] into $(VENV); the first time this is about 1.3 GB ..."
	$(call install-$(LOCK),$*)
	@touch '$@'
