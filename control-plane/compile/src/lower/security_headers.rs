//! Lowers `securityHeaders`: headers that are off are omitted.

use postern_proto::plan::v1::{HeaderValue, SecurityHeaders, step::Policy};

use super::{Lowering, Place};
use crate::params::SecurityHeadersParams;

const OFF: &str = "off";

impl Lowering {
    pub(super) fn security_headers(&mut self, place: &Place<'_>, params: &SecurityHeadersParams) -> Policy {
        let hsts = params.strict_transport_security.as_str();
        let has_age = hsts.split(';').any(|part| part.trim().to_ascii_lowercase().starts_with("max-age="));
        if hsts != OFF && !has_age {
            let message = "expected `max-age=` and a number of seconds, or `off`".to_owned();
            self.error(place, "params.strictTransportSecurity", message);
        }
        let values = [
            ("strict-transport-security", hsts),
            ("x-content-type-options", &params.content_type_options),
            ("x-frame-options", &params.frame_options),
            ("referrer-policy", &params.referrer_policy),
            ("content-security-policy", &params.content_security_policy),
            ("permissions-policy", &params.permissions_policy),
            ("cross-origin-opener-policy", &params.cross_origin_opener_policy),
            ("cross-origin-resource-policy", &params.cross_origin_resource_policy),
            ("cross-origin-embedder-policy", &params.cross_origin_embedder_policy),
        ];
        let set = values.into_iter().filter(|(_, value)| *value != OFF);
        let set = set.map(|(name, value)| HeaderValue { name: self.string(name), value: self.string(value) }).collect();
        let remove = params.remove.iter().map(|name| self.header_name(name)).collect();
        let keep_upstream = !params.override_upstream;
        Policy::SecurityHeaders(SecurityHeaders { set, remove, keep_upstream })
    }
}
