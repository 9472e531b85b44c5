"""A store in a directory that people can read: one file per run.

The file of a run is a log. Each transaction is one line at its end, written and synced at once, with a
checksum, so a reader sees all of it or nothing. What the lines add up to is the state of the run.
From time to time the state itself is written as a line: then a process that opens a long run reads
only the end of its file. What is dropped leaves the file: a body that is no longer needed is
overwritten with blanks, and if records are dropped, the file is written anew.

Writers lock the file of their run, and readers share the lock, so any number of processes of one
machine may use the store at once.

    lines.py         how a line is written, and how it is found again after a crash
    run_file.py      the file of a run: its lock, reading, appending, writing it anew
    layout.py        the names of files and folders
    threads.py       the threads that do the work
    store.py         what the port, which is in `stores/runs`, does with files
"""
