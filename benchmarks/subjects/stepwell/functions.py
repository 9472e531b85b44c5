"""Durable functions: steps one after the other, and an agent of pydantic-ai."""

from job import Job
from material import step_result

from stepwell import step, workflow
from subjects.stepwell.workflow import WARM, close, storage


@step
async def turn(number: int) -> str:
    return step_result(number)


@workflow
async def loop(steps: int) -> int:
    return sum([len(await turn(number)) for number in range(steps)])


async def steps(job: Job, place: str) -> None:
    kept = storage(place, job)
    function = loop.build(checkpoint_storage=kept)
    await function.run(WARM)
    with job.counted():
        await function.run(job["steps"])
    await close(kept)


async def agent(job: Job, place: str) -> None:
    from scripted_agent import look_up_text, make_agent

    from stepwell.agents.adapters.pydantic_ai import StepwellDurability

    async def look_up(number: int) -> str:
        return look_up_text(number)

    bench = make_agent(StepwellDurability(), look_up)

    @workflow
    async def talk(requests: int) -> str:
        return (await bench.run(str(requests))).output

    kept = storage(place, job)
    function = talk.build(checkpoint_storage=kept)
    await function.run(WARM)
    with job.counted():
        await function.run(job["requests"])
    await close(kept)
