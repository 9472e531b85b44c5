"""What stores share that hold each run as one value, in memory or in a file, and not as rows of tables.

A transaction checks what is known of a run, and puts a line that says what changed. What the lines add
up to is the state of the run. Where the lines and the bodies go is up to the store.

    state.py         what a line says, and what the lines of a run add up to
    run.py           one run: what a store has to implement for it
    transactions.py  what is read from a run, and what each transaction checks and changes
    store.py         the port
"""
