//! Lowers `cors`: checks origins, and joins lists to header values.

use postern_base::diagnostic::quote;
use postern_engine::{cel::Pattern, origin::OriginRule};
use postern_proto::plan::v1::{Cors, step::Policy};

use super::{Lowering, Place, policies::LowerError};
use crate::params::CorsParams;

impl Lowering {
    pub(super) fn cors(&mut self, place: &Place<'_>, params: &CorsParams) -> Result<Policy, LowerError> {
        if params.allow_origins.is_empty() && params.allow_origin_regexes.is_empty() {
            return Err(LowerError::Value("expected `allowOrigins` or `allowOriginRegexes`"));
        }
        for (index, origin) in params.allow_origins.iter().enumerate() {
            if OriginRule::parse(origin).is_none() {
                let message = format!(
                    "expected an origin such as `https://example.com` or `https://*.example.com`, `null` or `*`, found {}",
                    quote(origin)
                );
                self.error(place, &format!("params.allowOrigins[{index}]"), message);
            }
        }
        for (index, pattern) in params.allow_origin_regexes.iter().enumerate() {
            if let Err(reason) = Pattern::compile(pattern) {
                let message = format!("{} is no regular expression: {reason}", quote(pattern));
                self.error(place, &format!("params.allowOriginRegexes[{index}]"), message);
            }
        }
        if params.allow_credentials {
            self.no_wildcards(place, params);
        }
        let seconds = params.max_age.map(|age| age.0.as_secs().to_string());
        Ok(Policy::Cors(Cors {
            origins: params.allow_origins.iter().map(|origin| self.string(origin)).collect(),
            origin_patterns: params.allow_origin_regexes.iter().map(|pattern| self.string(pattern)).collect(),
            allow_methods: self.string(&params.allow_methods.join(", ")),
            allow_headers: self.string(&params.allow_headers.join(", ").to_ascii_lowercase()),
            expose_headers: self.string(&params.expose_headers.join(", ").to_ascii_lowercase()),
            max_age: self.string(&seconds.unwrap_or_default()),
            allow_credentials: params.allow_credentials,
            allow_private_network: params.allow_private_network,
            enforce: params.enforce,
        }))
    }

    /// Refuses wildcards together with credentials: browsers take `*` literally then, and reject it as an origin.
    fn no_wildcards(&mut self, place: &Place<'_>, params: &CorsParams) {
        let lists = [
            ("allowOrigins", &params.allow_origins),
            ("allowMethods", &params.allow_methods),
            ("allowHeaders", &params.allow_headers),
            ("exposeHeaders", &params.expose_headers),
        ];
        for (name, list) in lists {
            if list.iter().any(|item| item == "*") {
                let message = "`*` does not work with `allowCredentials`: name what is allowed".to_owned();
                self.error(place, &format!("params.{name}"), message);
            }
        }
    }
}
