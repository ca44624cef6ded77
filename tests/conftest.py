"""What holds for all tests.

No test is timed: a deadline of Hypothesis fails on a busy machine and says nothing about the code. And Ctrl-C can be tested where the tests
themselves run in the background: a shell starts background jobs with SIGINT ignored, and the processes that they start inherit that.
"""

import signal

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
