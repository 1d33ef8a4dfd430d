"""Files as people have them: a command for each, and what has to come of it.

`path` and `command` are what a user types, `BEGINS` stands for a command that goes on to its
chains, which are not run here. `says` is a part of the messages, and `held` the test of the
repository that makes a file of this kind of its own.
"""

from typing import NamedTuple

BEGINS = "(its chains begin)"


class Case(NamedTuple):
    """A file, a command, and what came of it before and has to come of it now."""

    situation: str
    command: str
    before: str
    says: str
    ends: str
    """`BEGINS`, "refused" or "done"."""
    held: str


_N = "--population-size 31000"
_HOUSEHOLDS = "--model ndpmpm --household hid --household-variables tenure"

CASES = [
    Case("columns that are all empty", f"risk 01_all_missing_column/a.csv {_N}",
         "one was named, and then the next", "--drop b,c", "refused",
         "tests/cli/test_advice.py::test_columns_that_are_dropped"),
    Case("a column of -7 and empty cells", f"risk 01_all_missing_column/b.csv {_N}",
         "refused for its empty cells", "'s' has '-7' (140 records) among its levels", BEGINS,
         "tests/data/test_sentinels.py::test_codes"),
    Case("a file with suppressed values", f"risk 02_suppressed_file/empty.csv {_N}",
         "refused", "say --missing-keys wildcard", BEGINS,
         "tests/cli/test_missing.py::test_the_risk_of_a_file_with_gaps_is_read_in_either_way"),
    Case("values suppressed by *", f"risk 02_suppressed_file/star.csv {_N}",
         "* was a level, in silence", "--missing 'marital=*'", BEGINS,
         "tests/data/test_labels.py::test_codes_of_missing_values"),
    Case("the same in a file to be judged",
         "evaluate 02_suppressed_file/orig.csv 02_suppressed_file/star.csv",
         "'declare it or correct the value'", "say --missing '*'", "refused",
         "tests/data/test_spelling.py::test_files_are_normalised_like_levels_that_were_merged"),
    Case("weights that nobody named", f"risk 03_weights/good.csv {_N}",
         "'put numbers into bins'", "design weights: they are no key variable; say --weights w",
         "refused",
         "tests/cli/test_weights.py::"
         "test_weights_that_do_not_fit_are_named_before_the_chains"),
    Case("weights that do not add up to N",
         "risk 03_weights/good.csv --weights w --population-size 10000",
         "the fourth warning after the chains", "the weights add up to 29,486", BEGINS,
         "tests/cli/test_weights.py::"
         "test_weights_that_do_not_fit_are_named_before_the_chains"),
    Case("weights such as 113,077", f"risk 03_weights/thousands.csv --weights w {_N}",
         "refused", "113077 or 113.077", "refused",
         "tests/data/test_notation.py"),
    Case("row names of R", f"risk 04_row_names/writetable.txt {_N}",
         "one variable, in silence", "columns that are left out: the first", BEGINS,
         "tests/data/test_text_files.py::"
         "test_rare_separators_are_looked_for_where_there_is_one_column"),
    Case("a first line sep=;", f"risk 05_sep_line/sep.csv {_N}",
         "refused; the remedy did not work", "read with semicolons", BEGINS,
         "tests/data/test_text_files.py::test_a_first_line_that_says_what_is_between_cells"),
    Case("a title above the header", f"risk 05_sep_line/title.csv {_N}",
         "refused", "say --skip 1", "refused",
         "tests/cli/test_advice.py::test_a_title_above_the_header"),
    Case("codes 01 and 1", f"risk 06_leading_zeros/mixed.csv {_N}",
         "two levels, in silence", "'01' (45 records) and '1' (25 records) of 'prov'", BEGINS,
         "tests/cli/test_label_checks.py::test_spellings_and_dates"),
    Case("ranges that became dates", f"risk 08_excel/dates.xlsx {_N}",
         "levels such as 2025-09-05, in silence", "was '5-9'", "refused",
         "tests/data/test_spelling.py::test_ranges_that_became_dates"),
    Case("a workbook with a title row", f"risk 08_excel/title.xlsx {_N}",
         "one column; 'tau1 can be used: it is 0'", "say --skip 2", "refused",
         "tests/data/test_excel.py::test_a_title_is_no_header"),
    Case("categories of Parquet that nobody has", f"risk 09_parquet_types/unused.parquet {_N}",
         "levels, in silence", "has 40 categories that no record has", BEGINS,
         "tests/data/test_reading.py::test_categories_that_no_record_has_are_told"),
    Case("ages up to 84, and 85+",
         f"risk 10_topcoded/age85.csv --top-code age=80 {_N}", "80+ beside 85+", "", BEGINS,
         "tests/data/test_merging.py::test_top_coding_of_ranges"),
    Case("9999 among ages", "synthesize 10_topcoded/age9999.csv --bins age=8",
         "synthetic ages of 252 and 1,270", "'9999' (13 records) looks like a code", "refused",
         "tests/cli/test_label_checks.py::test_what_is_refused"),
    Case("-9 among years", f"risk 10_topcoded/rare9.csv --merge-rare 10 {_N}",
         "a level '-9 to 1'", "'-9' (5 records) looks like a code", "refused",
         "tests/cli/test_label_checks.py::test_what_is_refused"),
    Case("a name with a line break and a comma",
         f"risk 11_unicode/header.csv --variables 'age,\"education, highest level\"' {_N}",
         "no option could name it", "read without line breaks", BEGINS,
         "tests/data/test_folders.py::test_names_are_read_as_those_of_text_files"),
    Case("two normal forms of Québec", f"risk 11_unicode/nfd.csv {_N}",
         "two levels, in silence", "--normalise merges them", BEGINS,
         "tests/data/test_spelling.py::test_files_are_normalised_and_it_is_said"),
    Case("no occupation of children", "synthesize 13_missing_by_design/skip.csv",
         "192 of 192 synthetic children had occupations, in silence",
         "'occ' is empty in all 189 records with 'age' 0-14", BEGINS,
         "tests/zeros/test_settled.py::test_what_is_said_of_values_that_are_missing_by_design"),
    Case("one record", "synthesize 14_tiny_and_extreme/one.csv",
         "refused", "at least two are needed", "refused", "tests/cli/test_cli.py"),
    Case("a household without a head", f"synthesize 16_households/nohead.csv {_HOUSEHOLDS}",
         "53 of 200 synthetic households without a head, in silence",
         "household '7' has no person with the value 'Head'", "refused",
         "tests/cli/test_advice.py::test_a_household_without_a_head_is_named"),
    Case("households numbered anew in each region",
         "synthesize 16_households/restart_notenure.csv --model ndpmpm --household hid "
         "--variables hid,rel,age,sex",
         "households of 21 to 34 persons, in silence", "numbered anew in each region", "refused",
         "tests/cli/test_advice.py::test_numbers_of_households_that_start_again"),
    Case("spouses of one sex",
         f"synthesize 16_households/size15.csv {_HOUSEHOLDS} --rules census-relationships",
         "refused; the role was not named", "a row 'same-sex spouse,Spouse'", "refused",
         "tests/cli/test_advice.py::test_spouses_of_one_sex"),
    Case("user-missing values of SPSS", "synthesize 18_spss_stata/user.sav",
         "filled in, in silence", "say --keep-missing", BEGINS,
         "tests/cli/test_missing.py::"
         "test_without_the_option_it_is_said_before_chains_are_run"),
    Case("a synthetic file that lacks a column",
         "evaluate 19_evaluate_others/orig.csv 19_evaluate_others/syn_lacks.csv",
         "'unknown column'", "has no column 'edu', which the original has", "refused",
         "tests/data/test_spelling.py::test_files_are_normalised_like_levels_that_were_merged"),
    Case("a synthetic file with NA",
         "evaluate 19_evaluate_others/orig.csv 19_evaluate_others/syn_NA.csv",
         "'declare it or correct the value'", "say --missing NA", "refused",
         "tests/data/test_spelling.py::test_files_are_normalised_like_levels_that_were_merged"),
    Case("a constant key", f"risk 20_monotone/m.csv --what-if drop:const {_N}",
         "another figure without it", "", BEGINS,
         "tests/cli/test_groups.py::test_groups_are_recorded_and_repeated"),
    Case("labels with + and ;",
         f"risk 21_odd_names/odd.csv --what-if 'merge:region=\"C; D\"+G=H' {_N}",
         "could not be named", "", BEGINS,
         "tests/cli/test_advice.py::test_what_if_statements_on_odd_names"),
    Case("incomes with decimal commas",
         f"risk 22_decimal_comma/eu.csv --drop w --bins income=10 {_N}",
         "167 of 177 levels were exact incomes, in silence", "read with a decimal comma", BEGINS,
         "tests/cli/test_label_checks.py::test_synthetic_files_are_written_as_the_sample"),
    Case("household numbers as text", f"risk 24_group_ids/text_hid.csv {_N}",
         "a key: 3,755 of 4,619 records unique", "each of which 3.1 records have", "refused",
         "tests/data/test_identifying.py::test_what_identifies_groups"),
]  # fmt: skip
