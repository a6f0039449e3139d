filter_depth_max: int
