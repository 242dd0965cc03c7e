"""The parts that the cells of a study share: its data, its releases, its networks and its adversaries."""
