"""Types of what functions return, for annotations and for their documentation."""

from bnp_models.comparison.comparison import Compared as Compared
from bnp_models.comparison.comparison import Comparison as Comparison
from bnp_models.evaluation.attack.posterior import Posterior as Posterior
from bnp_models.evaluation.attack.result import AttackRisk as AttackRisk
from bnp_models.evaluation.closest import ClosestRecords as ClosestRecords
from bnp_models.evaluation.combining import Combined as Combined
from bnp_models.evaluation.disclosure_measures import Disclosure as Disclosure
from bnp_models.evaluation.evaluation import Evaluation as Evaluation
from bnp_models.evaluation.propensity import PropensityScore as PropensityScore
from bnp_models.evaluation.proportion_estimates import Proportions as Proportions
from bnp_models.evaluation.tree_scores import TreePropensity as TreePropensity
from bnp_models.inference.diagnosis import Diagnosis as Diagnosis
from bnp_models.inference.modes import Modes as Modes
from bnp_models.models.cells.dirichlet_multinomial import CountsRun as CountsRun
from bnp_models.models.cells.empirical_bayes import EmpiricalBayes as EmpiricalBayes
from bnp_models.models.cells.full_bayes import HyperparameterDraws as HyperparameterDraws
from bnp_models.risk.cells import CellRisk as CellRisk
from bnp_models.risk.coarser_risk import CoarserRisk as CoarserRisk
from bnp_models.risk.loglinear import LogLinearRisk as LogLinearRisk
from bnp_models.risk.population import PopulationRisk as PopulationRisk
from bnp_models.risk.protection import FileRisk as FileRisk
from bnp_models.risk.protection import Protection as Protection
from bnp_models.risk.validation import Validation as Validation
from bnp_models.risk.verdict import Verdict as Verdict
from bnp_models.synthesis.margins import Margins as Margins
from bnp_models.synthesis.predictive_checks import PredictiveChecks as PredictiveChecks
