from .anonymity import Anonymity as Anonymity
from .anonymity import l_diversity as l_diversity
from .cells import benedetti_franconi_risk as benedetti_franconi_risk
from .cells import counts_of_counts as counts_of_counts
from .loglinear import check_support as check_support
from .population import tau1_monitor as tau1_monitor
from .special_uniques import suda as suda
