"""Freelance: clients and servers without a broker between them, in the three models of the guide.

    one at a time    a client asks one server after the other
    shotgun          it asks all at once, and takes the first answer
    addressed        it knows which servers are alive, and asks the one that was served longest ago (RFC 10)
"""

from xump.zeromq.freelance.addressed import Addressed
from xump.zeromq.freelance.agent import Agent
from xump.zeromq.freelance.machine import Freelance
from xump.zeromq.freelance.one_at_a_time import OneAtATime
from xump.zeromq.freelance.server import FreelanceServer
from xump.zeromq.freelance.shotgun import Shotgun

__all__ = ["Addressed", "Agent", "Freelance", "FreelanceServer", "OneAtATime", "Shotgun"]
