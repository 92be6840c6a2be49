"""The stages of a reshard, in order:

spec        user input becomes a `Description`, and that a `Reshard`
planner     a `Reshard` becomes a `Plan`: one exchange, or collectives of the basis
learn       the contents of loaders, compared with a layout
emit        a `Plan` becomes contexts, and these, by `templates/`, the files of a bundle
backends    modules of one kind each; `registry` lists them, `base` has the interface
verify      modules are run against the oracle, without an accelerator
compile     and are compiled by the real compilers
show, cli   output for people

trace, propagate, partition     programs: from a function to shardings of all its values
hardware, workers               foundations of the others
"""
