"""Laws of the recovery loop under observations in any order, sensible or not."""

from hypothesis import given
from hypothesis import strategies as st

from lastgood.recovery import loop
from lastgood.recovery import messages as m
from lastgood.recovery.crew import Standing
from lastgood.recovery.last_good import TrustBook, choose, key_of
from lastgood.recovery.policy import LoopPhase, simple_policy
from lastgood.signals.reading import Assessment, Question, Symptom, Verdict

names = st.sampled_from([f"w{number}" for number in range(8)])
ranks = st.integers(0, 3)
"""One more than there is: a wrong rank must change nothing."""
generations = st.integers(1, 6)
candidates = st.builds(
    m.Candidate,
    step=st.integers(0, 12),
    tier=st.sampled_from(m.Tier),
    digest=st.sampled_from(["", "d"]),
    has_predecessor=st.booleans(),
    generation=st.none() | generations,
    published_us=st.none() | st.integers(0, 10**7),
)
assessments = st.builds(
    Assessment,
    question=st.sampled_from(Question),
    verdict=st.sampled_from(Verdict),
    symptom=st.none() | st.sampled_from(Symptom),
    culprits=st.lists(ranks, unique=True, max_size=3).map(tuple),
    onset_us=st.none() | st.integers(0, 10**7),
    first_divergent_step=st.none() | st.integers(0, 12),
    key=st.sampled_from(["", "KeyError", "OSError"]),
)
observations = st.one_of(
    st.builds(m.Assessed, assessments),
    st.builds(m.WorkerGone, names),
    st.builds(m.WorkerUnkillable, names),
    st.builds(m.WorkerParked, names, st.none() | generations),
    st.builds(m.SpareReady, names),
    st.builds(m.SpareLost, names),
    st.builds(m.StacksDumped, names, st.just("stack")),
    st.builds(m.Progress, st.integers(0, 12), generations),
    st.builds(m.CatalogueRead, candidates=st.lists(candidates, max_size=4).map(tuple)),
    st.builds(m.Restored, rank=ranks, generation=generations, is_intact=st.booleans()),
    st.builds(
        m.Replayed,
        rank=ranks,
        generation=generations,
        step=st.just(1),
        outcome=st.sampled_from(m.ReplayOutcome),
    ),
    st.just(m.Tick()),
    st.just(m.StopRequested("x")),
)
HELP = "help"
"""Stands for what a healthy world would answer next: without it hardly a tape reaches a replay."""
entries = st.integers(0, 9).flatmap(lambda draw: observations if draw == 9 else st.just(HELP))
tapes = st.lists(st.tuples(entries, st.integers(0, 100_000)), min_size=15, max_size=60)


def helpful(state: loop.LoopState, number: int) -> m.Observation:
    """The next answer that the loop waits for."""
    case = state.case
    doomed = state.crew.serving_with(Standing.DOOMED)
    active = state.crew.serving_with(Standing.ACTIVE)
    if case is None:
        return m.WorkerGone(state.crew.serving[number % 3])
    if case.awaited_stacks:
        return m.StacksDumped(min(case.awaited_stacks), "stack")
    if state.phase is LoopPhase.ISOLATING:
        return m.WorkerGone(doomed[0]) if doomed else m.WorkerParked(active[0], state.generation)
    if case.catalogue is None:
        return m.CatalogueRead(
            candidates=tuple(
                m.Candidate(step=s, tier=m.Tier.SLOT, digest="d", has_predecessor=True)
                for s in range(6)
            )
        )
    if not case.is_assigned:
        return m.SpareReady(f"n{number}")
    silent = [r for r in range(3) if r not in case.restored]
    if silent:
        return m.Restored(rank=silent[0], generation=state.generation, is_intact=True)
    silent = [r for r in range(3) if r not in case.replayed]
    if not silent:  # a rank raised in its replay, and only time goes on
        return m.Tick()
    return m.Replayed(
        rank=silent[0], generation=state.generation, step=1, outcome=m.ReplayOutcome.EQUAL
    )


def play(tape):
    """Every step of the loop on a tape: (state before, observation, state after, actions, time)."""
    policy = simple_policy(timeout_us=5_000_000, soft_deadline_us=1_000_000)
    state = loop.initial_state(3, None, ["w0", "w1", "w2"], 1, now_us=0, policy=policy)
    now_us = 0
    for number, (drawn, delay_us) in enumerate(tape):
        now_us += delay_us
        before = state
        if state.phase is LoopPhase.ESCALATED:
            return
        observation = helpful(state, number) if drawn == HELP else drawn
        state, actions = loop.step(state, observation, now_us)
        yield before, observation, state, actions, now_us


@given(tapes)
def test_whatever_is_observed_the_loop_keeps_its_promises(tape):
    generation = 1
    open_incident = None
    for before, _, after, actions, now_us in play(tape):
        for action in actions:
            if isinstance(action, m.Assign):
                assert action.generation > generation
                assert len(set(action.workers)) == 3
                generation = action.generation
            if isinstance(action, m.Resume):
                assert action.generation == generation
                assert before.case.is_assigned
            if isinstance(action, m.Record) and action.kind == "incident.open":
                assert open_incident is None
                open_incident = action.fields["incident"]
            if isinstance(action, m.Record) and action.kind == "incident.close":
                assert open_incident == action.fields["incident"]
                open_incident = None
        assert (after.case is None) == (after.phase in (LoopPhase.RUNNING, LoopPhase.ESCALATED))
        assert (after.case is None) == (open_incident is None)
        assert (after.deadline_us is None) == (
            after.phase in (LoopPhase.RUNNING, LoopPhase.ESCALATED)
        )
        assert after.deadline_us is None or after.deadline_us > now_us
        assert len(set(after.crew.serving)) == 3


@given(tapes)
def test_a_loop_never_resumes_without_all_three_ranks_having_restored_and_replayed(tape):
    for before, observation, _, actions, _ in play(tape):
        if any(isinstance(action, m.Resume) for action in actions):
            assert isinstance(observation, m.Replayed)
            replayed = {**before.case.replayed, observation.rank: observation}
            assert set(before.case.restored) == set(replayed) == {0, 1, 2}
            assert all(a.is_intact for a in before.case.restored.values())
            assert all(a.outcome is not m.ReplayOutcome.DIFFERENT for a in replayed.values())


@given(tapes)
def test_the_same_tape_gives_the_same_actions(tape):
    assert [s[3] for s in play(tape)] == [s[3] for s in play(tape)]


@given(tapes)
def test_time_alone_ends_every_incident(tape):
    """After the tape nothing answers any more: only the clock moves, and that must be enough."""
    steps = list(play(tape))
    if not steps:
        return
    _, _, state, _, now_us = steps[-1]
    for _ in range(8 * state.policy.attempts_max):
        now_us += 5_000_000
        state, _ = loop.step(state, m.Tick(), now_us)
    assert state.phase in (LoopPhase.RUNNING, LoopPhase.ESCALATED)


@given(st.lists(candidates, max_size=8), st.none() | st.integers(0, 12), st.data())
def test_the_choice_is_the_newest_of_what_is_allowed(states, below, data):
    book = TrustBook()
    for step in data.draw(st.lists(st.integers(0, 12), max_size=3)):
        book = book.resumed(
            generation=data.draw(generations), step=step, at_us=data.draw(st.integers(0, 10**7))
        )
    choice = choose(book, states, published_step=5, below_step=below)
    allowed = [
        s
        for s in states
        if s.digest and (below is None or s.step < below) and book.is_current(s, published_step=5)
    ]
    if choice is None:
        assert allowed == []
        return
    assert choice.candidate in allowed
    assert choice.plan.target_step == max(s.step for s in allowed)
    assert choice.plan.restore_step in (choice.plan.target_step, choice.plan.target_step - 1)
    assert key_of(choice.candidate).step == choice.plan.target_step
