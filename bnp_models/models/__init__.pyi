from .cells.dirichlet_multinomial import sample_population_counts as sample_population_counts
from .nested.relative import relative_to_heads as relative_to_heads
from .nested.starts import complete_households as complete_households
