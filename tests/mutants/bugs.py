"""Bugs that this library must not have, each as a small change to its source, and the tests that must notice.

A bug that no test notices is a missing test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """A change to one file: the text `good`, which is in it once, becomes `bad`."""

    name: str
    file: str  # under src/stepwell
    good: str
    bad: str
    tests: tuple[str, ...]  # under tests; one of them must fail


DIES = "properties/test_die_at_any_write.py"
HANDLES = "properties/test_die_with_a_handle.py"
RULES = "stores/test_rules.py"
FUNCTIONS = "functional/test_changed_functions.py"
INSIDE = "properties/test_die_in_a_sub_workflow.py"
BRANCHES = "engine/test_branches.py"
WAITING = "properties/test_die_while_waiting.py"

ENGINE = (
    Bug(
        "what was remembered is not recalled",
        "engine/superstep/superstep.py",
        "            outcome = self._recalled.get(delivery.id)\n",
        "            outcome = None\n",
        ("engine/test_running.py", "engine/test_runs.py", DIES),
    ),
    Bug(
        "outcomes are not remembered before the commit",
        "engine/superstep/superstep.py",
        "        if self._scope.archive.has_superstep_log and not is_stored:\n",
        "        if False:\n",
        ("engine/test_memory.py",),
    ),
    Bug(
        "it is told before it is stored",
        "engine/drive/drive.py",
        "                at = await self._commit(decision, at)\n",
        "                early = kernel.apply(at.header, at, decision.commit)\n"
        "                yield self._broadcast.emit_commit(decision.commit, early)\n"
        "                at = await self._commit(decision, at)\n",
        (
            "engine/test_running.py",
            "engine/test_runs.py",
        ),
    ),
    Bug(
        "outcomes are merged in the order they finished",
        "kernel/superstep.py",
        "[outcomes[delivery.id] for delivery in current.deliveries]",
        "list(outcomes.values())",
        ("kernel", "engine/test_supersteps.py", "engine/test_superstep_handlers.py"),
    ),
    Bug(
        "conditions are asked again after a crash",
        "kernel/superstep.py",
        "        following += [(taker, message.payload, sources, message.reply, message.timer) for taker in "
        "message.takers]\n",
        "        asked = graph.outgoing.get(message.source or '', ())\n"
        "        said = message.payload.open()\n"
        "        again = [e.target for e in asked if getattr(e, 'condition', None) and e.condition(said)]\n"
        "        again = again or message.takers\n"
        "        following += [(taker, message.payload, sources, message.reply, message.timer) for taker in again]\n",
        ("engine/test_conditions.py",),
    ),
    Bug(
        "what memory holds is not forgotten with the commit",
        "engine/drive/drive.py",
        "        drop_log_through = at.place if commit.place != at.place else None\n",
        "        drop_log_through = None\n",
        ("engine/test_memory.py",),
    ),
    Bug(
        "a failed commit is passed over",
        "storage/store_archive.py",
        "        except StepwellError:\n            raise\n        except Exception as error:",
        "        except StepwellError:\n            return\n        except Exception as error:",
        (
            "engine/test_running.py",
            "engine/test_runs.py",
        ),
    ),
    Bug(
        "a run may go on with another input",
        "engine/opening/open_run.py",
        "    if head.header.input_digest != digest:\n",
        "    if False:\n",
        ("engine/test_position.py", "engine/test_running.py", "engine/test_runs.py"),
    ),
    Bug(
        "a run may go on with a graph that has not what it needs",
        "engine/opening/compatibility.py",
        "    if missing:\n        steps =",
        "    if missing and False:\n        steps =",
        (
            "engine/test_running.py",
            "engine/test_runs.py",
        ),
    ),
)

MAIL = (
    Bug(
        "mail is not consumed",
        "storage/store_archive.py",
        "            drop_log_through,\n            consumed,\n",
        "            drop_log_through,\n            (),\n",
        ("engine/test_requests.py", HANDLES),
    ),
    Bug(
        "the second answer wins",
        "stores/runs/transactions.py",
        "    is_new = key not in run.state.used_keys\n",
        "    is_new = True\n",
        (RULES,),
    ),
    Bug(
        "an answer is not checked",
        "engine/intake/responses.py",
        "        return answer_as(value, wanted)\n",
        "        return value\n",
        ("engine/test_requests.py",),
    ),
)

TIME = (
    Bug(
        "a sleep begins anew after a crash",
        "engine/drive/drive.py",
        "dict(self._intake.log.entries)",
        "{k: v for k, v in self._intake.log.entries.items() if '/timer/' not in k}",
        ("engine/test_timers.py", "engine/test_timers_and_others.py", WAITING),
    ),
    Bug(
        "attempts are counted anew after a crash",
        "engine/durability/attempts.py",
        "        before = log.find_failures(key)\n",
        "        before = []  # type: list[LogEntry]\n",
        (WAITING,),
    ),
    Bug(
        "a step is not remembered",
        "engine/handler/steps.py",
        "            await context.log.add(step.key, result)\n",
        "",
        ("engine/test_steps.py",),
    ),
    Bug(
        "steps of one name are one step",
        "model/log_keys.py",
        'return f"{delivery}/step/{number}{_in_branch(branch)}/{name}"',
        'return f"{delivery}/step/0{_in_branch(branch)}/{name}"',
        ("engine/test_steps.py",),
    ),
    Bug(
        "branches share their steps",
        "model/log_keys.py",
        'return f"@{branch}" if branch else ""',
        'return ""',
        (BRANCHES,),
    ),
    Bug(
        "what a step does inside counts outside",
        "engine/handler/branches.py",
        "        return Branch(self, self.outer, step, is_in_step=True, is_step=True)\n",
        "        return self\n",
        (BRANCHES,),
    ),
    Bug(
        "a renamed step of a durable function is executed",
        "engine/handler/call_steps.py",
        "            self.replay.check_order(step, context)\n",
        "            pass\n",
        (FUNCTIONS,),
    ),
    Bug(
        "a durable function may leave recorded steps out",
        "engine/handler/replay.py",
        "        if self.is_over or context.recall_changed:\n",
        "        if True:\n",
        (FUNCTIONS,),
    ),
    Bug(
        "a run under way takes the new path",
        "engine/handler/call_steps.py",
        "        is_over = self.replay.is_over\n",
        "        is_over = True\n",
        (FUNCTIONS,),
    ),
    Bug(
        "a function that is stopped makes its clean-up steps on the way out",
        "engine/handler/call_steps.py",
        "        if lost is None and self._scope.is_left():\n",
        "        if False:\n",
        ("functional/test_stopped_functions.py",),
    ),
    Bug(
        "what a time limit of its own cancels is taken for a function that is left",
        "engine/superstep/reading_task.py",
        "self._task.cancelling() > self._cancelled_before",
        "asyncio.current_task().cancelling() > 0",
        ("functional/test_stopped_functions.py",),
    ),
    Bug(
        "a handler whose step asks is never left",
        "engine/handler/context.py",
        "self.asking + len(set(map(id, self._waiting_steps)))",
        "self.asking",
        ("functional/test_questions.py",),
    ),
    Bug(
        "a changed call is recalled in silence",
        "engine/handler/steps.py",
        "entry.call == step.call or context.recall_changed:",
        "entry.call != step.call or context.recall_changed:",
        (BRANCHES,),
    ),
    Bug(
        "a task with a context of its own has no branch",
        "engine/handler/branches.py",
        "            _by_task[task] = branch\n",
        "",
        (BRANCHES,),
    ),
    Bug(
        "branches of a turn share the places of tool calls",
        "agents/turn_steps.py",
        '        branch, part = self._branches()[0] if within is None else "", self.part(within)\n',
        '        branch, part = "", self.part(within)\n',
        ("agents/test_turns.py",),
    ),
)

RUNS = (
    Bug(
        "a call of a sub-workflow begins a new run each time",
        "storage/ids.py",
        '    return _derive_id(f"child/{epoch}/{delivery}/{run_id}")\n',
        "    return str(uuid.uuid4())\n",
        (INSIDE,),
    ),
    Bug(
        "what a waiting sub-workflow needs is dropped",
        "storage/record.py",
        "        if needed is None:\n",
        "        if True:\n",
        ("engine/test_retention.py",),
    ),
    Bug(
        "a run that keeps only its latest keeps all",
        "storage/store_archive.py",
        "self._chain.unneeded_below(after.number, self.needed) if snapshot and latest_only else None",
        "None",
        ("engine/test_retention.py",),
    ),
    Bug(
        "what is superseded stays when a run rests",
        "storage/store_archive.py",
        "        rests = latest_only and is_at_rest(after)",
        "        rests = False",
        ("engine/test_latest_only.py",),
    ),
    Bug(
        "a record with outputs keeps the state, too",
        "storage/store_archive.py",
        "            reduced=() if below is None else self._chain.outputs_below(below),\n",
        "",
        ("engine/test_latest_only.py",),
    ),
    Bug(
        "what goes of a run inside goes before its caller has committed",
        "storage/record.py",
        "        return first if first is not None and first <= needed else None\n",
        "        return snapshot\n",
        ("engine/test_retention.py", "engine/test_latest_only.py"),
    ),
    Bug(
        "the claim of a run that is alive is taken over",
        "storage/lease.py",
        "        return self.left < 0 or self.owner.is_dead()\n",
        "        return True\n",
        (RULES, "engine/test_running.py", "engine/test_runs.py"),
    ),
    Bug(
        "the numbers of claims are not looked at",
        "storage/store_archive.py",
        "            fence=self._fences.get(header.run_id),\n",
        "            fence=None,\n",
        ("engine/test_fences.py",),
    ),
)

STORES = (
    Bug(
        "in memory and in files, a commit is taken wherever the run is",
        "stores/runs/transactions.py",
        "    check_follows(entry, state.latest)\n",
        "",
        (RULES,),
    ),
    Bug(
        "in memory and in files, the last commit of a drive does not end its lease",
        "stores/runs/transactions.py",
        "    line.release = effects.release and effects.fence == state.fence\n",
        "",
        (RULES,),
    ),
    Bug(
        "in memory, a look at leases extends them",
        "stores/runs/transactions.py",
        "    if seconds is not None and lease is not None and not lease.was_released and run.state.fence == fence:\n"
        "        run.set_lease_end(lease.owner.clock() + seconds)\n",
        "    if lease is not None and not lease.was_released and run.state.fence == fence:\n"
        "        run.set_lease_end(lease.owner.clock() + (seconds or 600))\n",
        (RULES,),
    ),
    Bug(
        "a rewrite removes what others are based on",
        "storage/rewrite_plan.py",
        "        if after is not None and not after.is_snapshot and number + 1 not in going | changed:\n",
        "        if False:\n",
        (RULES,),
    ),
    Bug(
        "the newest record is removed without a word about what is open then",
        "storage/rewrite_plan.py",
        "    if newest in going and effects is None:\n",
        "    if False:\n",
        (RULES,),
    ),
    Bug(
        "a page of checkpoints is lost with the one it starts from",
        "storage/filters.py",
        "            ordered = ordered[: bisect_left(ordered, self._sort_key(before), key=self._sort_key)]\n",
        "            ordered = ordered[: ordered.index(before)] if before in ordered else []\n",
        (RULES,),
    ),
    Bug(
        "in SQLite, a commit is taken wherever the run is",
        "stores/sqlite/records.py",
        "        check_follows(entry, run.latest)\n",
        "",
        (RULES,),
    ),
    Bug(
        "SQLite does not wait for the disk",
        "stores/sqlite/schema.py",
        'db.execute("PRAGMA synchronous = FULL")',
        'db.execute("PRAGMA synchronous = OFF")',
        ("power",),
    ),
    Bug(
        "the log of a run is not synced",
        "stores/files/run_file.py",
        "            os.fsync(self._fd)\n",
        "            pass\n",
        ("power",),
    ),
    Bug(
        "the name of a log is not synced",
        "stores/files/run_file.py",
        "                sync_folder(self.folder)\n                self._is_named = True\n",
        "                self._is_named = True\n",
        ("power",),
    ),
    Bug(
        "a log that is written anew is not synced",
        "stores/files/run_file.py",
        "            os.fsync(fresh._fd)\n",
        "",
        ("power",),
    ),
    Bug(
        "what others append to a log is not noticed",
        "stores/files/run_file.py",
        "        if size > self.end:\n",
        "        if size > self.end == 0:\n",
        (RULES,),
    ),
    Bug(
        "a log that another process wrote anew is taken for the one before",
        "stores/files/run_file.py",
        "        if size < self.end or (size and os.pread(self._fd, _FIRST, 0) != self._first):\n",
        "        if size < self.end or (size and not self._first):\n",
        ("stores/test_file_known.py",),
    ),
    Bug(
        "a file is locked that has lost its name meanwhile",
        "storage/durable_files.py",
        "            if os.path.samestat(os.fstat(handle), os.stat(path)):\n",
        "            if True:\n",
        ("stores/test_file.py",),
    ),
    Bug(
        "a write that a crash cut off stays in the log",
        "stores/files/run_file.py",
        "            if self._size > start:\n",
        "            if False:\n",
        ("stores/test_file_crashes.py",),
    ),
    Bug(
        "a write that a crash cut off is taken for damage",
        "stores/files/lines.py",
        "    return first if is_cut_off and is_last else None\n",
        "    return first if first == len(data) else None\n",
        ("stores/test_file_crashes.py",),
    ),
    Bug(
        "damage in a log is taken for what a crash leaves",
        "stores/files/lines.py",
        "    return first if is_cut_off and is_last else None\n",
        "    return first\n",
        ("stores/test_file_crashes.py",),
    ),
    Bug(
        "a signal stays in the log although it was consumed",
        "stores/runs/state.py",
        "        self.dead += [self.signals.pop(key) for key in line.consumed if key in self.signals]\n",
        "        [self.signals.pop(key) for key in line.consumed if key in self.signals]\n",
        ("stores/test_file_runs.py",),
    ),
    Bug(
        "what was left by a writer that was killed stays in the log",
        "stores/files/run_file.py",
        "                _unlink(_part(self.path))\n                sync",
        "                sync",
        ("stores/test_file_crashes.py",),
    ),
    Bug(
        "sums are not looked at",
        "storage/integrity.py",
        "    if text != add_checksum(plain, address):\n",
        "    if False:\n",
        ("storage/test_guard.py",),
    ),
    Bug(
        "a record is not bound to its place",
        "storage/integrity.py",
        '{entry.checkpoint_id}".encode("utf-8", "surrogatepass")\n',
        '{entry.checkpoint_id}".encode("utf-8", "surrogatepass")[:0]\n',
        ("storage/test_guard.py", RULES),
    ),
    Bug(
        "a text beside the records is not bound to its place",
        "storage/integrity.py",
        '{name}".encode("utf-8", "surrogatepass")\n',
        '{name}".encode("utf-8", "surrogatepass")[:0]\n',
        ("storage/test_guard.py", RULES),
    ),
    Bug(
        "a change is stored against the wrong end",
        "storage/deltas.py",
        "    tail = _count_common(before, after, min(len(before), len(after)) - start, from_end=True)\n",
        "    tail = _count_common(before, after, min(len(before), len(after)), from_end=True)\n",
        ("storage/test_edits.py",),
    ),
    Bug(
        "equal items of a large list count as unchanged, whatever their type",
        "model/payload.py",
        "            return len(items) == len(self._items) and all(map(is_, items, self._items))\n",
        "            return items == self._items\n",
        ("properties/test_large_value_properties.py",),
    ),
    Bug(
        "the order of keys in a large list is not compared",
        "model/payload.py",
        "            and all(map(is_, _keys(items), keys))  # the order of keys is part of a value\n",
        "",
        ("properties/test_large_value_properties.py",),
    ),
    Bug(
        "readers of a large list share its items",
        "model/payload.py",
        "        return list(map(dict.copy, self._items)) if self._are_dicts else self._items.copy()\n",
        "        return self._items.copy()\n",
        ("properties/test_large_value_properties.py",),
    ),
    Bug(
        "the same end of two large values is counted twice",
        "storage/deltas.py",
        "    foot = _count_equal(old[head:][::-1], new[head:][::-1])\n",
        "    foot = _count_equal(old[::-1], new[::-1])\n",
        ("properties/test_large_value_properties.py",),
    ),
    Bug(
        "chains with a missing link are read",
        "storage/record.py",
        "    if before is None or before.number != commit.number - 1:\n",
        "    if before is None:\n",
        ("storage/test_gaps.py",),
    ),
)

CHANGES = (
    Bug(
        "a migration is made again each time the run is opened",
        "engine/opening/open_run.py",
        "        CommitKind.MIGRATED if changed else None,\n",
        "        None,\n",
        ("engine/test_code_changes.py",),
    ),
    Bug(
        "a migrated run keeps the version it had",
        "storage/store_archive.py",
        "        snapshot = new_header or rests or self._chain.wants_snapshot(after)\n",
        "        snapshot = commit.number == 0 or rests or self._chain.wants_snapshot(after)\n",
        ("engine/test_code_changes.py",),
    ),
    Bug(
        "a migrated run forgets what had finished before",
        "engine/opening/open_run.py",
        "        log=compatible.log,\n",
        "        log=EMPTY_LOG,\n",
        ("engine/test_code_changes.py",),
    ),
    Bug(
        "migrated runs keep what had finished as it was",
        "engine/opening/compatibility.py",
        "    log = _migrate_log(definition, after, log, migrator)\n",
        "    log = log if migrations else _migrate_log(definition, after, log, migrator)\n",
        ("engine/test_code_changes.py",),
    ),
    Bug(
        "what waits in a fan-in that is gone is not missed when code is migrated",
        "kernel/compatibility.py",
        "        if key not in fan_ins and counts:\n",
        "        if False:\n",
        ("kernel/test_needs.py",),
    ),
)

EDGES = (
    Bug(
        "a list of one checkpoint is refused",
        "storage/checkpoint_list.py",
        "limit < 1)",
        "limit <= 1)",
        ("engine/test_lists_of_runs.py",),
    ),
    Bug(
        "a rejected response keeps its request from being answered",
        "storage/answers.py",
        "        key = next_answer_key(key)\n",
        "        raise await find_answered_error(archive, run_id, response.request_id)\n",
        ("admin/test_answering.py",),
    ),
    Bug(
        "an answer that a handler waited for is not fixed",
        "engine/handler/questions.py",
        "fixed is not None and fixed.answer is not None",
        "False",
        ("admin/test_asking.py",),
    ),
    Bug(
        "handlers are left while a sibling works",
        "engine/handler/questions.py",
        "return sum(asker.is_waiting for asker in self._askers) >= self.lanes",
        "return True",
        ("admin/test_asking.py",),
    ),
    Bug(
        "requests of stopped runs are listed",
        "storage/filters.py",
        "return has_owner or status not in STOPPED",
        "return True",
        ("stores/test_rules.py",),
    ),
    Bug(
        "a request is not listed before its superstep commits",
        "storage/store_archive.py",
        "effects = LogEffects(pending_of(at.header, asked), tuple(closed))",
        "effects = LogEffects((), tuple(closed))",
        ("admin/test_early_requests.py",),
    ),
    Bug(
        "a question of a handler that has returned is still listed",
        "storage/store_archive.py",
        "effects = LogEffects(pending_of(at.header, asked), tuple(closed))",
        "effects = LogEffects(pending_of(at.header, asked), ())",
        ("admin/test_left_questions.py",),
    ),
    Bug(
        "a question of a handler that has returned can be answered",
        "kernel/requests.py",
        "(delivery_of(str(request.waiting)) in log.outcomes or",
        "(False or",
        ("admin/test_left_questions.py",),
    ),
    Bug(
        "an answer that nobody uses leaves no trace",
        "engine/handler/questions.py",
        "        unused = await self._find_unused(",
        "        unused = await self._find_unused({}) and await self._find_unused(",
        ("admin/test_left_questions.py",),
    ),
    Bug(
        "what a sub-workflow asks is not listed while the run inside sleeps",
        "workflows/subworkflow.py",
        "            for request in drive.open_requests.values():\n",
        "            for request in ():\n",
        ("admin/test_left_questions.py",),
    ),
    Bug(
        "a second response is sent although another is on its way",
        "storage/answers.py",
        "        if isinstance(earlier, Response):\n",
        "        if False and isinstance(earlier, Response):\n",
        ("admin/test_answering.py",),
    ),
    Bug(
        "a workflow as an agent answers two messages at once",
        "workflows/subworkflow_agent.py",
        "    _handles_concurrently = False  # a conversation has an order\n",
        "    _handles_concurrently = True\n",
        ("agents/test_as_agent.py",),
    ),
    Bug(
        "a run that somebody else was about to start is never started",
        "workflows/background_drive.py",
        "                return position  # it is about to be started\n",
        "                return self._resume_position\n",
        ("engine/test_starting.py",),
    ),
    Bug(
        "a run that somebody drives may be started with another message",
        "workflows/background_drive.py",
        "            check_same_start(self._workflow._definition, head, position.message)\n",
        "",
        ("engine/test_starting.py",),
    ),
    Bug(
        "doctor does not look again at a run that was moved on",
        "admin/doctor/examination.py",
        "            if (again.at.number, listed.number) == (run_copy.at.number, entry.number):\n",
        "            if again is not None:\n",
        ("admin/test_examining.py",),
    ),
    Bug(
        "a run that stays ready loses its place in the order",
        "storage/stored_values.py",
        "    return stored if wake == at and stored is not None and stored < at else wake\n",
        "    return wake\n",
        (RULES,),
    ),
    Bug(
        "a handle that watches drives",
        "workflows/handle.py",
        "        if self._drives:\n            self._background.continue_run()\n",
        "        self._background.continue_run()\n",
        ("engine/test_watching.py",),
    ),
    Bug(
        "a cancel that arrives while a run goes to sleep is slept through",
        "engine/drive/drive.py",
        "                self._intake.signals = None  # read them again\n",
        "                self._intake.signals = {}\n",
        ("engine/test_watching.py",),
    ),
    Bug(
        "a run is submitted with another input",
        "engine/opening/submission.py",
        "            check_same_start(definition, head, position.message)\n",
        "",
        ("engine/test_verbs.py",),
    ),
    Bug(
        "a follower sees a commit twice",
        "storage/followed_run.py",
        "await store.history(run_id, after=last, upto=upto)",
        "await store.history(run_id, after=last - 1, upto=upto)",
        ("stores/test_following.py",),
    ),
    Bug(
        "changed tags are not listed",
        "storage/store_archive.py",
        "metadata=metadata_of(header) if new_header or commit.tags else None,",
        "metadata=metadata_of(header) if new_header else None,",
        ("engine/test_tags.py",),
    ),
    Bug(
        "a run that somebody drives is ready",
        "storage/filters.py",
        "            and (run.lease is None or run.lease.is_over())\n",
        "",
        (RULES,),
    ),
    Bug(
        "approvals are asked for in the order in which the OpenAI SDK lists them",
        "agents/adapters/openai_agents/agent.py",
        'sorted((item for item in items if item.name not in rules), key=lambda item: item.call_id or "")',
        "[item for item in items if item.name not in rules]",
        ("agents/test_openai_agents_settling.py",),
    ),
    Bug(
        "the provider of an OpenAI agent is never closed",
        "agents/adapters/openai_agents/agent.py",
        "                await base.model_provider.aclose()\n",
        "                pass\n",
        ("agents/test_openai_agents_settling.py",),
    ),
    Bug(
        "dicts that contain each other are compared",
        "codec/traversal.py",
        "cycle.repeated is value",
        "cycle.repeated == value",
        ("codec/test_codec_cycles.py",),
    ),
    Bug(
        "a dict that is met twice is taken for one that contains itself",
        "codec/traversal.py",
        "            self._inside.discard(id(value))",
        "            pass",
        ("codec/test_codec_cycles.py",),
    ),
    Bug(
        "a branch that has finished is shown as one that is called again",
        "admin/overview/branches.py",
        'BranchProgress(id, executor, "finished", outcome.time',
        'BranchProgress(id, executor, "next", outcome.time',
        ("surfaces/cli/test_show.py",),
    ),
    Bug(
        "values are printed as they are stored",
        "admin/values.py",
        '    if ":" in tag:\n',
        "    if False:\n",
        ("admin/test_values.py",),
    ),
    Bug(
        "an export without steps keeps what an agent's calls came to",
        "admin/transfer/redaction.py",
        "            del record[name]\n            self._used.update(paths)\n",
        "            self._used.update(paths)\n",
        ("agents/test_calls_on_record.py",),
    ),
    Bug(
        "a call that was recalled is listed as if it had been made",
        "admin/calls.py",
        '        facts += ["recalled"] if self.recalled else []\n',
        "",
        ("agents/test_calls_on_record.py",),
    ),
    Bug(
        "a field of a response that nobody asked for is overlooked",
        "admin/schemas/validation.py",
        '{"additionalProperties": False} if closed(schema) else {}',
        "{}",
        ("surfaces/cli/test_responding.py",),
    ),
    Bug(
        "a duplicate key of a definition is overlooked",
        "declarative/files/source_lines.py",
        "if isinstance(key, str) and key not in mapping:",
        "if isinstance(key, str):",
        ("declarative/test_hostile_files.py",),
    ),
    Bug(
        "the line of bad UTF-8 is not counted from the first byte",
        "declarative/files/source_lines.py",
        'error.object.count(b"\\n", 0, error.start)',
        'error.object.count(b"\\n", 1, error.start)',
        ("declarative/test_hostile_files.py",),
    ),
    Bug(
        "connections of a store that nobody closed stay open",
        "stores/sqlite/access.py",
        "        self._for_reading.close()\n",
        "",
        ("stores/test_left_open.py",),
    ),
    Bug(
        "a dataclass that extends a C type with state is stored",
        "codec/classes.py",
        "    return cls.__basicsize__ - base.__basicsize__ <= _POINTER * len(visible)\n",
        "    return True\n",
        (
            "codec/test_codec.py",
            "codec/test_classes.py",
        ),
    ),
    Bug(
        "a stream keeps all it has told",
        "engine/drive/run_stream.py",
        "        self._stream = weakref.ref(stream)",
        "        self._stream = lambda: stream",
        ("engine/test_long_streams.py",),
    ),
    Bug(
        "a run is let go of after its driver is forgotten",
        "engine/drive/lease.py",
        "        try:\n            await self._release(stalls=stalls)\n        finally:\n            # Not before",
        "        try:\n            if self._key is not None:\n"
        "                watchers.unregister_drive(self._key, self._drive)\n"
        "            await self._release(stalls=stalls)\n        finally:\n            # Not before",
        ("engine/test_cancelling.py",),
    ),
    Bug(
        "an agent does not give way to what siblings have finished",
        "agents/turn_steps.py",
        "    await asyncio.sleep(0)\n",
        "    return\n",
        ("agents/test_first_turn.py",),
    ),
)

PICTURES = (
    Bug(
        "text in a drawing or a report is markup",
        "viz/markup.py",
        'return html.escape(visible(str(text), keep=f"\\t\\n\\r\\xa0{JOINERS}"), quote=True)',
        "return str(text)",
        ("viz/test_svg.py", "admin/test_pages.py"),
    ),
    Bug(
        "a report draws the conductor of named agents",
        "declarative/stored_diagram.py",
        "    if not is_of_named_agents(at):\n        return None\n",
        "    return None\n",
        ("viz/test_surfaces.py",),
    ),
    Bug(
        "a wait is drawn as long as it was",
        "admin/overview/timeline.py",
        "if begin - end > longest]",
        "if False]",
        ("admin/test_report.py",),
    ),
    Bug(
        "an executor is suggested that could not do the work",
        "kernel/suggestions.py",
        "        if _can_replace(graph.executors[new], old, at)\n",
        "",
        ("engine/test_suggested_migrations.py",),
    ),
    Bug(
        "arrows cross where they need not",
        "viz/layout/ordering.py",
        "        if crossings < fewest:\n",
        "        if False:\n",
        ("viz/test_layout.py",),
    ),
)

PROGRAMS = "compat/test_programs.py"

DOOR = (
    Bug(
        "a run of the door shows what it showed before",
        "compat/agent_framework/events.py",
        "    if event.replayed or event.path:\n",
        "    if event.path:\n",
        (PROGRAMS,),
    ),
    Bug(
        "the door restores no executor from a checkpoint",
        "compat/agent_framework/runner.py",
        "        run.start, run.are_live, run.checkpoint_id = at, False, checkpoint_id\n",
        "        run.start, run.are_live, run.checkpoint_id = at, True, checkpoint_id\n",
        (PROGRAMS,),
    ),
    Bug(
        "the door stores the keyword arguments of a run",
        "compat/agent_framework/nodes.py",
        "        if self._run_values.has(key):\n            return self._run_values.get(key)\n",
        "        if self._run_values.has(key):\n            self._ctx.set_state(key, self._run_values.get(key))\n",
        (PROGRAMS,),
    ),
    Bug(
        "pieces of an answer are stored as outputs",
        "compat/agent_framework/nodes.py",
        "        return isinstance(data, AgentResponseUpdate) and self.is_streaming()\n",
        "        return False\n",
        ("compat/test_manners.py",),
    ),
    Bug(
        "a condition is asked about messages that its target does not take",
        "compat/agent_framework/edges.py",
        "        return accepts(target, value) and await edge.should_route(value)\n",
        "        return await edge.should_route(value)\n",
        (PROGRAMS,),
    ),
)

WORKERS = (
    Bug(
        "a worker checks no code before it drives a run",
        "worker/worker.py",
        "        await check_code(self._storage, served, run.run_id)\n",
        "",
        ("worker/test_worker.py",),
    ),
    Bug(
        "a commit does not end the row of takeovers",
        "stores/sqlite/records.py",
        "    if run.takeovers:\n",
        "    if False:\n",
        ("worker/test_setting_aside.py",),
    ),
    Bug(
        "a lease that was let go counts as a takeover",
        "stores/runs/transactions.py",
        "    is_takeover = lease is not None and lease.owner != owner and not lease.was_released\n",
        "    is_takeover = True\n",
        ("worker/test_setting_aside.py",),
    ),
    Bug(
        "a run that is left in the middle is not stalled",
        "engine/drive/drive.py",
        "stalls=is_in_middle and not self.hands_over",
        "stalls=False",
        ("stores/test_ready.py",),
    ),
    Bug(
        "a run whose slice is over is stalled",
        "worker/slices.py",
        "                    drive.hands_over = True\n",
        "",
        ("worker/test_leaving.py",),
    ),
    Bug(
        "a worker that stops cuts its supersteps off",
        "worker/worker.py",
        "        if self._driving and not self._hurried.is_set():\n",
        "        if False:\n",
        ("worker/test_leaving.py",),
    ),
    Bug(
        "all workers want the same run at once",
        "worker/shortlist.py",
        "        return sum(_weight(peer, run.run_id) > ours for peer in peers)\n",
        "        return 0\n",
        ("worker/test_shortlist.py",),
    ),
    Bug(
        "ready runs are driven oldest first, whatever their priority",
        "storage/filters.py",
        "        return -run.metadata.priority, since, run.run_id\n",
        "        return 0, since, run.run_id\n",
        ("worker/test_priority.py",),
    ),
    Bug(
        "a run whose hint was lost is left to the hint for ever",
        "worker/shortlist.py",
        "HINTED = 0.9\n",
        "HINTED = 1e9\n",
        ("worker/test_procrastinate.py",),
    ),
    Bug(
        "a run that is announced twice becomes two jobs",
        "worker/dispatch/procrastinate.py",
        "            queueing_lock=hashlib.sha256(run.run_id.encode()).hexdigest(),\n",
        "",
        ("worker/test_procrastinate.py",),
    ),
    Bug(
        "a retried run does not say that its failure was reported",
        "kernel/lifecycle.py",
        "kind=CommitKind.RETRIED, by=by)\n    resting",
        "kind=CommitKind.RETRIED, by=by, wake=None)\n    resting",
        ("admin/test_retries.py",),
    ),
)

STREAMS = (
    Bug(
        "a stream repeats outputs from before a resume",
        "engine/drive/run_stream.py",
        "        return not is_repeated or self._replay or self._watched.drive.was_completed\n",
        "        return True\n",
        ("engine/test_stream_contents.py",),
    ),
    Bug(
        "a stream of a completed run has no outputs",
        "engine/drive/run_stream.py",
        "        return not is_repeated or self._replay or self._watched.drive.was_completed\n",
        "        return not is_repeated or self._replay\n",
        ("engine/test_stream_contents.py",),
    ),
    Bug(
        "a stream of a request in a sub-workflow has it twice",
        "workflows/subworkflow.py",
        '        if event.type == "request_info" and not event.path:\n            return\n',
        "",
        ("engine/test_stream_contents.py",),
    ),
    Bug(
        "a stream of a handle leaves out open requests",
        "workflows/stored_result.py",
        "if event.request_id not in asked",
        "if False",
        ("engine/test_stream_contents.py",),
    ),
    Bug(
        "a stream does not say what returned beside a handler that sleeps",
        "engine/superstep/superstep.py",
        "        if not self._is_complete or self.failures or self.parked:\n",
        "        if not self._is_complete:\n",
        ("engine/test_call_times.py",),
    ),
)

REMINDERS = (
    Bug(
        "a timer that is due fires although an answer has arrived",
        "engine/intake/signals.py",
        "        due = [] if judged.arrived else find_due(at, self._timers_until)\n",
        "        due = find_due(at, self._timers_until)\n",
        ("engine/test_set_timers.py",),
    ),
    Bug(
        "a timer that has fired stays set",
        "kernel/lifecycle.py",
        "    timers, children = _end_timers(before, due) if due else ({}, {})\n",
        "    timers, children = {}, {}\n",
        ("kernel/test_timers.py",),
    ),
    Bug(
        "a fork has no timers",
        "kernel/lifecycle.py",
        "        timers=checkpoint.timers,\n",
        "",
        ("kernel/test_timers.py",),
    ),
    Bug(
        "a handler waits for ever if the store fails",
        "engine/handler/questions.py",
        "            self._looking.add_done_callback(self._raise_where_handlers_wait)\n",
        "",
        ("admin/test_asking.py",),
    ),
)

STREET = (
    Bug(
        "whoever watches live events is not notified of them",
        "stores/postgres/live.py",
        "SELECT count(*), {_NOTIFY} FROM written",
        "SELECT count(*) FROM written",
        ("server/test_live_on_postgresql.py",),
    ),
    Bug(
        "a worker asks again and again who watches",
        "worker/live_relay.py",
        "_LOOK_ANYWAY if self._ring.notifies else _LOOK_EVERY",
        "_LOOK_EVERY",
        ("server/test_live_on_postgresql.py",),
    ),
    Bug(
        "a repeated call of a tool starts another run",
        "server/mcp/routes.py",
        "        run_id = None if key is None else derive_run_id(params.name, identity.name, key)\n",
        "        run_id = None\n",
        ("server/test_mcp.py",),
    ),
    Bug(
        "a request that is asked again has the key of the first one",
        "server/mcp/routes.py",
        'f"{request.request_id}@{request.asked_at.isoformat()}"',
        "request.request_id",
        ("server/test_mcp.py",),
    ),
    Bug(
        "a patch of the state loses its nulls",
        "server/ag_ui/thread_stream.py",
        'event.model_dump(by_alias=True, mode="json")',
        'event.model_dump(by_alias=True, mode="json", exclude_none=True)',
        ("server/test_ag_ui.py",),
    ),
    Bug(
        "arguments of a tool call are cut",
        "agents/call_summaries.py",
        "_storable(_write(arguments)) if arguments",
        "_begin(arguments) if arguments",
        ("agents/test_calls_on_record.py",),
    ),
    Bug(
        "a message that failed does not hold back the next one of its run",
        "storage/outbox.py",
        "                heads.setdefault(row.run_id, row)\n",
        "                heads[row.run_id] = row\n",
        ("stores/test_rules.py",),
    ),
)

BUGS = (
    *ENGINE,
    *MAIL,
    *TIME,
    *RUNS,
    *STORES,
    *CHANGES,
    *EDGES,
    *PICTURES,
    *DOOR,
    *WORKERS,
    *STREAMS,
    *REMINDERS,
    *STREET,
)
