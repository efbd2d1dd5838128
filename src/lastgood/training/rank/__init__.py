"""What runs inside a rank: the only place that imports torch.

`worker.py` is the process, `run.py` what the user's script sees, and each other file one duty of a step:
`group.py` joins and leaves generations, `standby.py` has groups ready for that, `readiness.py` does early what can be
done early, `hook.py` counts collectives, `state.py` and `snapshot.py` keep and restore state, `feed.py` keeps the data
position.
"""
