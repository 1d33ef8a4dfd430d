from .coding import Coding as Coding
from .equivalences import Equivalence as Equivalence
from .settled import Settled as Settled
from .settled import empty_as_level as empty_as_level
from .settled import find_settled as find_settled
from .settled import keep_empty as keep_empty
from .settled import ties as ties
