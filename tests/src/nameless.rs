//! What makes of `envoy-config/overlay.yaml` an Envoy whose routes have no names.

/// What the file says, with what takes its place: every path is one route, and nothing is refused before the filter.
pub const ROUTES: [(&str, &str); 4] = [
    (
        "                            prefix: /\n                            headers:\n",
        "                            path: /unused\n                            headers:\n",
    ),
    ("                        - name: welcome\n                          match: { path: /welcome }\n", EVERYTHING),
    (
        "                        - name: users\n                          match: { path_separated_prefix: /users }\n",
        EVERYTHING,
    ),
    (
        "                          match: { safe_regex: { regex: '.*(?:;|%3[bB]).*' } }\n",
        "                          match: { path: /unused }\n",
    ),
];
const EVERYTHING: &str = "                        - match: { prefix: / }\n";

/// How the file says that paths and hosts are normalized.
pub const NORMALIZATION: &str = "                strip_trailing_host_dot: true
                normalize_path: true
                merge_slashes: true
                path_with_escaped_slashes_action: REJECT_REQUEST
";

/// No normalization: the filter sees what was sent.
pub const AS_IT_CAME: &str = "                normalize_path: false
                merge_slashes: false
                path_with_escaped_slashes_action: KEEP_UNCHANGED
";
