"""Reading and writing files: data, labels, levels, posteriors, tables, schemas of results."""

from bnp_models.data.reading import read_frame as read_frame
from bnp_models.data.reading import read_levels as read_levels
from bnp_models.data.source import Source as Source
from bnp_models.data.stata_spss import FormatError as FormatError
from bnp_models.data.stata_spss import Labelling as Labelling
from bnp_models.data.stata_spss import read_labelling as read_labelling
from bnp_models.data.text_files import Reading as Reading
from bnp_models.data.writing import write_frame as write_frame
from bnp_models.data.writing import write_json as write_json
from bnp_models.data.writing import write_table as write_table
from bnp_models.evaluation.attack.posterior import read_posterior as read_posterior
from bnp_models.evaluation.files import read_like as read_like
from bnp_models.inference.arviz import write_netcdf as write_netcdf
from bnp_models.report.cells import write_cells as write_cells
from bnp_models.report.inference_data import write_records as write_records
from bnp_models.report.json_schemas import json_schema as json_schema
from bnp_models.rules.roles import read_roles as read_roles
