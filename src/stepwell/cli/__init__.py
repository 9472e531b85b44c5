"""The command line `stepwell`: inspect and drive runs from a shell.

`app` is the group of commands, `commands/` has one module for each command, `stores/` finds and
opens the store that is meant, `views/` prints, and `forms/` asks people.

Imports. The shell starts the program for every completion, so help and completion must not import
the engine. Three rules keep that cheap and visible:

- `app` imports a command when it is called, and has its own copy of their one-line help.
- `stepwell` and `stepwell.admin` load their public names when they are first used. Commands import
  the packages at the top and write `admin.find_run(...)` or `stepwell.Workflow`.
- What is not public, or belongs to a dependency that may be missing, is imported inside a function
  only if it was measured to cost more than 10 ms that not every call needs. Such an import ends
  with a comment `# lazy: ` and the reason. The modules that it names (`run_tail`, `drive`,
  `views/picture`, ...) import everything at their top.
"""
