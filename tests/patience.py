"""How long a test waits for what another thread or program of its own does.

Only where no time of Xump's brings the same later, such as the end of a lease or a client's next try: there the test's own bound
says that it came without.
"""

# Seconds. Only a test that would fail waits so long: a core of a shared machine has stood still for two minutes.
PATIENCE = 300
