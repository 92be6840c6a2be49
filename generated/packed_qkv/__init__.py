"""One relayout: README.md describes it, plan.json has its plan."""
