"""The stages of a reshard, in order:

spec        user input becomes a `Description`, and that a `Reshard`
planner     a `Reshard` becomes a `Plan`: one exchange, or collectives of the basis
learn       the contents of loaders, compared with a layout
text        a `Plan` becomes contexts of templates, and these, by `templates/`, text
backends    modules of one kind each; `base` has the interface
emit        the files of a bundle, and their check
verify      modules are run against the oracle of `checks`, without an accelerator
compile     and are compiled by the real compilers
show, cli   output for people

trace, propagate, partition     programs: from a function to shardings of all its values
hardware, registry, hlo, workers, checks     foundations of the others
"""
