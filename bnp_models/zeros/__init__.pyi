from .coding import Coding as Coding
from .equivalences import Equivalence as Equivalence
