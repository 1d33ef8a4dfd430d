from .compilation import NotEnoughMemory as NotEnoughMemory
from .steps import model_of_steps as model_of_steps
from .trace import ChainOptions as ChainOptions
from .trace import Settings as Settings
from .weighting import population_law as population_law
from .weighting import sample_law as sample_law
from .weighting import unsampled_law as unsampled_law
