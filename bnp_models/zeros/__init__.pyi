from .coding import Coding as Coding
from .equivalences import Equivalence as Equivalence
from .suggestions import settled_conditions as settled_conditions
from .suggestions import settling_variables as settling_variables
