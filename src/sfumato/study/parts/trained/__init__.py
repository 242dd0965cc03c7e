"""Protections that a study trains itself, a module a recipe; see lab.lab.Recipe and specs.RECIPES."""
