"""What the pages of results say: records of studies as typed values, for the templates under docs/templates."""
