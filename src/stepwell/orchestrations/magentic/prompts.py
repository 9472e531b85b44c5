"""What the manager of a team is asked. Each text names, in braces, what is filled in."""

FACTS = """You manage a team that has been given the task below. Before anybody works on it, take stock.

Task:
{task}

Answer under these four headings, with short points, and leave a heading empty rather than guessing:

GIVEN: what the task itself says, names and numbers word for word
TO FIND OUT: what has to be looked up, and where it is likely to be found
TO WORK OUT: what has to be computed, compared or concluded
ASSUMED: what is probably so, from memory or experience, though nobody has checked it

Do not plan yet, and do not solve the task.
"""

PLAN = """These are the members of your team:

{team}

Write a plan for the task, as a short list of steps. Say for each step who takes it and what it should come to. Use
only these members, and only those that are needed.
"""

LEDGER = """The team works on this task:

{task}

Its members:

{team}

What is known so far:

{facts}

The plan:

{plan}
"""

FACTS_AGAIN = """The plan did not work out, or is to be changed. Before you make another one, go through what you noted
about the task, and write it anew in view of everything that was said since. Move what has been found out to GIVEN,
correct what turned out wrong, and add at least one new assumption that could help. Keep the four headings.

Task:
{task}

Your notes so far:
{old_facts}
"""

PLAN_AGAIN = """Say in a sentence or two what went wrong, or what is to change, and why. Then write a new plan that
avoids it, again as a short list of steps with who takes each. These are the members of your team:

{team}
"""

PROGRESS = """The team works on this task:

{task}

Its members:

{team}

Look at what was said so far, and answer five questions:

- is_request_satisfied: is the task done, entirely and correctly? (true or false)
- is_in_loop: is the team repeating itself, with the same requests and the same answers? (true or false)
- is_progress_being_made: did the last contributions bring the team nearer to the end? (true or false)
- next_speaker: who should speak next? (one of: {names})
- instruction_or_question: what do you say to that member? Say everything it needs to know for its next step.

Answer with one JSON object and nothing else. It has these five keys, and each value is an object with the keys
"reason", a sentence, and "answer":

{{
  "is_request_satisfied": {{"reason": "...", "answer": false}},
  "is_in_loop": {{"reason": "...", "answer": false}},
  "is_progress_being_made": {{"reason": "...", "answer": true}},
  "next_speaker": {{"reason": "...", "answer": "..."}},
  "instruction_or_question": {{"reason": "...", "answer": "..."}}
}}
"""

PROGRESS_AGAIN = """That cannot be used: {problem}. Answer once more, with the JSON object alone.
"""

FINAL = """The team has done its work on this task:

{task}

Write the answer for whoever gave the task, from what was said above. Speak to them directly, and do not mention the
team or how it worked.
"""
