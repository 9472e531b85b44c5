"""The default prompts for the agent that manages a Magentic team; placeholders are in braces."""

FACTS = """You manage a team that has been given the task below. Before work starts, take stock.

Task:
{task}

Answer under these four headings, in short bullet points. Leave a heading empty rather than guess:

GIVEN: facts stated in the task itself, with names and numbers quoted exactly
TO FIND OUT: facts that must be looked up, and where they are likely to be found
TO WORK OUT: results that must be computed, compared or concluded
ASSUMED: what is probably true, from memory or experience, but has not been checked

Do not make a plan yet, and do not solve the task.
"""

PLAN = """These are the members of your team:

{team}

Write a plan for the task, as a short list of steps. For each step, say which member carries it out and what the
result should be. Use only these members, and only those that are needed.
"""

LEDGER = """The team is working on this task:

{task}

Its members:

{team}

What is known so far:

{facts}

The plan:

{plan}
"""

FACTS_AGAIN = """The plan did not succeed, or must be changed. Before you make another one, revise your notes about the
task in the light of the whole conversation since. Move what has been found out to GIVEN, correct what turned out to be
wrong, and add at least one new assumption that could help. Keep the four headings.

Task:
{task}

Your notes so far:
{old_facts}
"""

PLAN_AGAIN = """Explain in one or two sentences what went wrong, or what must change, and why. Then write a new plan
that avoids the problem, again as a short list of steps, with the member who carries out each. These are the members of
your team:

{team}
"""

PROGRESS = """The team is working on this task:

{task}

Its members:

{team}

Read the conversation so far, and answer five questions:

- is_request_satisfied: is the task completely and correctly done? (true or false)
- is_in_loop: is the team repeating the same requests and the same answers? (true or false)
- is_progress_being_made: did the latest contributions bring the team closer to a result? (true or false)
- next_speaker: who should speak next? (one of: {names})
- instruction_or_question: what do you tell or ask that member? Include everything it needs for its next step.

Answer with one JSON object and nothing else. It has these five keys. Each value is an object with the keys "reason",
which holds one sentence, and "answer":

{{
  "is_request_satisfied": {{"reason": "...", "answer": false}},
  "is_in_loop": {{"reason": "...", "answer": false}},
  "is_progress_being_made": {{"reason": "...", "answer": true}},
  "next_speaker": {{"reason": "...", "answer": "..."}},
  "instruction_or_question": {{"reason": "...", "answer": "..."}}
}}
"""

PROGRESS_AGAIN = """Your answer could not be used: {problem}. Answer again, with the JSON object and nothing else.
"""

FINAL = """The team has completed its work on this task:

{task}

Write the answer for the person who gave the task, based on the conversation above. Address them directly, and do not
mention the team or how it worked.
"""
