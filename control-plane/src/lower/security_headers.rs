//! `securityHeaders`: the defaults filled in, what is off left out.

use postern_proto::plan::v1::{HeaderValue, SecurityHeaders, step::Policy};
use serde::Deserialize;

use super::{Lowering, Place};

const OFF: &str = "off";

impl Lowering {
    pub(super) fn security_headers(&mut self, place: &Place<'_>, params: &SecurityHeadersParams) -> Policy {
        let hsts = params.strict_transport_security.as_deref().unwrap_or("max-age=31536000; includeSubDomains");
        let has_age = hsts.split(';').any(|part| part.trim().to_ascii_lowercase().starts_with("max-age="));
        if hsts != OFF && !has_age {
            let message = "expected `max-age=` and a number of seconds, or `off`".to_owned();
            self.error(place, "params.strictTransportSecurity", message);
        }
        let values = [
            ("strict-transport-security", hsts),
            ("x-content-type-options", params.content_type_options.as_deref().unwrap_or("nosniff")),
            ("x-frame-options", params.frame_options.as_deref().unwrap_or("DENY")),
            ("referrer-policy", params.referrer_policy.as_deref().unwrap_or("strict-origin-when-cross-origin")),
            ("content-security-policy", params.content_security_policy.as_deref().unwrap_or(OFF)),
            ("permissions-policy", params.permissions_policy.as_deref().unwrap_or(OFF)),
            ("cross-origin-opener-policy", params.cross_origin_opener_policy.as_deref().unwrap_or("same-origin")),
            ("cross-origin-resource-policy", params.cross_origin_resource_policy.as_deref().unwrap_or("same-origin")),
            ("cross-origin-embedder-policy", params.cross_origin_embedder_policy.as_deref().unwrap_or(OFF)),
        ];
        let set = values.into_iter().filter(|(_, value)| *value != OFF);
        let set = set.map(|(name, value)| HeaderValue { name: self.string(name), value: self.string(value) }).collect();
        let remove = match &params.remove {
            Some(names) => names.iter().map(|name| self.header_name(name)).collect(),
            None => ["server", "x-powered-by"].map(|name| self.string(name)).to_vec(),
        };
        let keep_upstream = params.override_upstream == Some(false);
        Policy::SecurityHeaders(SecurityHeaders { set, remove, keep_upstream })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecurityHeadersParams {
    strict_transport_security: Option<String>,
    content_type_options: Option<String>,
    frame_options: Option<String>,
    referrer_policy: Option<String>,
    content_security_policy: Option<String>,
    permissions_policy: Option<String>,
    cross_origin_opener_policy: Option<String>,
    cross_origin_resource_policy: Option<String>,
    cross_origin_embedder_policy: Option<String>,
    #[serde(rename = "override")]
    override_upstream: Option<bool>,
    remove: Option<Vec<String>>,
}
