//! Fetches a key set over HTTP. Blocks the thread; time, size and redirects are limited.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, Uri, header};
use postern_base::diagnostic::quote;
use postern_model::KeyUri;
use ureq::{
    Agent, Body,
    tls::{RootCerts, TlsConfig},
};

use super::source::{Content, Fetch, Fetched};

/// The time-out of one fetch, including redirects.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest body that is read, in bytes. A set of a hundred keys with certificates is smaller.
const LARGEST_BODY: u64 = 512 * 1024;
const LARGEST_HEAD: usize = 32 * 1024;
const MOST_REDIRECTS: usize = 3;
const LONGEST_TAG: usize = 512;

type Response = axum::http::Response<Body>;

/// An HTTP client for key sets.
#[derive(Debug, Clone)]
pub struct Client {
    https: Agent,
    /// For publishers on this machine. It uses no proxies, since those would leave the machine.
    loopback: Agent,
}

impl Default for Client {
    fn default() -> Self {
        let config = || {
            Agent::config_builder()
                // Redirects are followed here, since each target must be checked.
                .max_redirects(0)
                .http_status_as_error(false)
                .max_response_header_size(LARGEST_HEAD)
                .user_agent(concat!("postern/", env!("CARGO_PKG_VERSION")))
                // Kept connections are mostly dead after minutes, with a few fetches an hour.
                .max_idle_connections(0)
                .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
        };
        Self { https: config().https_only(true).build().into(), loopback: config().proxy(None).build().into() }
    }
}

impl Client {
    /// Fetches a key set. Failures are returned as text for status and logs.
    pub fn fetch(&self, fetch: &Fetch) -> Fetched {
        self.follow(fetch, Instant::now()).unwrap_or_else(Fetched::Failed)
    }

    fn follow(&self, fetch: &Fetch, start: Instant) -> Result<Fetched, String> {
        let mut uri = fetch.uri.clone();
        for _ in 0..=MOST_REDIRECTS {
            let left = PATIENCE.saturating_sub(start.elapsed()).max(Duration::from_millis(1));
            let response = self.ask(&uri, fetch.tag.as_deref(), left)?;
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
                return read(response);
            }
            uri = redirect(&uri, response.headers())?;
        }
        Err(format!("more than {MOST_REDIRECTS} redirects"))
    }

    fn ask(&self, uri: &KeyUri, tag: Option<&str>, patience: Duration) -> Result<Response, String> {
        let agent = if uri.is_https() { &self.https } else { &self.loopback };
        let request = agent.get(uri.as_str()).header(header::ACCEPT, "application/jwk-set+json, application/json");
        let request = match tag {
            Some(tag) => request.header(header::IF_NONE_MATCH, tag),
            None => request,
        };
        request.config().timeout_global(Some(patience)).build().call().map_err(|error| describe(&error))
    }
}

/// The target of a redirect, or why it is not allowed.
fn redirect(from: &KeyUri, headers: &HeaderMap) -> Result<KeyUri, String> {
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or("a redirect that does not say where to")?;
    let absolute = match location.parse::<Uri>() {
        Ok(uri) if uri.scheme().is_some() => location.to_owned(),
        Ok(_) if location.starts_with('/') && !location.starts_with("//") => {
            let base: Uri = from.as_str().parse().map_err(|_| "no URI")?;
            let (scheme, authority) = (base.scheme_str().unwrap_or_default(), base.authority());
            format!("{scheme}://{}{location}", authority.map_or("", |authority| authority.as_str()))
        }
        _ => return Err(format!("a redirect to {}, which is neither a URI nor a path", quote(location))),
    };
    let target = KeyUri::try_from(absolute).map_err(|error| format!("a redirect to {}: {error}", quote(location)))?;
    if from.is_https() && !target.is_https() {
        return Err(format!("a redirect from `https` to {}", quote(location)));
    }
    Ok(target)
}

fn read(mut response: Response) -> Result<Fetched, String> {
    let max_age = max_age(response.headers());
    match response.status() {
        StatusCode::NOT_MODIFIED => return Ok(Fetched::Fresh { content: Content::Unchanged, max_age }),
        StatusCode::OK => {}
        status => return Err(format!("the answer is {status}")),
    }
    let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let tag = tag.filter(|tag| tag.len() <= LONGEST_TAG).map(str::to_owned);
    let body = response.body_mut().with_config().limit(LARGEST_BODY).read_to_vec().map_err(|error| describe(&error))?;
    Ok(Fetched::Fresh { content: Content::Body(body, tag), max_age })
}

fn describe(error: &ureq::Error) -> String {
    match error {
        ureq::Error::BodyExceedsLimit(_) => format!("the answer has more than {LARGEST_BODY} bytes"),
        ureq::Error::Timeout(_) => format!("no answer within {} seconds", PATIENCE.as_secs()),
        other => other.to_string(),
    }
}

/// How long the response is fresh (RFC 9111, section 5.2.2). `None` if it does not say.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let directives = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut found = None;
    for directive in directives.flat_map(|value| value.split(',')).map(str::trim) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        let seconds = match name.to_ascii_lowercase().as_str() {
            "no-cache" | "no-store" => Some(0),
            "max-age" => value.trim_matches('"').parse().ok(),
            _ => None,
        };
        found = match (found, seconds) {
            (Some(known), Some(seconds)) => Some(seconds.min(known)),
            (known, seconds) => known.or(seconds),
        };
    }
    found.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_how_long_an_answer_is_fresh() {
        let check = |values: &[&str], expect: Option<u64>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CACHE_CONTROL, value.parse().unwrap());
            }
            assert_eq!(max_age(&headers), expect.map(Duration::from_secs), "for {values:?}");
        };
        check(&[], None);
        check(&["public"], None);
        check(&["max-age=60"], Some(60));
        check(&["public, Max-Age=\"60\" , must-revalidate"], Some(60));
        check(&["max-age=60", "max-age=30"], Some(30));
        check(&["max-age=60, no-cache"], Some(0));
        check(&["no-store"], Some(0));
        check(&["max-age=-1"], None);
        check(&["max-age=99999999999999999999"], None);
        check(&["s-maxage=5"], None);
    }

    #[test]
    fn follows_redirects_to_safe_places_only() {
        let check = |from: &str, location: &str, expect: Result<&str, &str>| {
            let from = KeyUri::try_from(from.to_owned()).unwrap();
            let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
            match (redirect(&from, &headers), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found.as_str(), expect),
                (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
                (found, _) => panic!("for `{location}`: {found:?}"),
            }
        };
        let https = "https://issuer.example/keys";
        check(https, "https://other.example/keys", Ok("https://other.example/keys"));
        check(https, "/moved?x", Ok("https://issuer.example/moved?x"));
        check(https, "http://issuer.example/keys", Err("anyone on the way"));
        check(https, "http://127.0.0.1/keys", Err("from `https`"));
        check(https, "//other.example/keys", Err("neither"));
        check(https, "moved", Err("neither"));
        check(https, "file:///etc/passwd", Err("a redirect"));
        check(https, "https://a:b@other.example/", Err("credentials"));
        check("http://127.0.0.1:1/keys", "/moved", Ok("http://127.0.0.1:1/moved"));
        check("http://127.0.0.1:1/keys", "https://issuer.example/", Ok("https://issuer.example/"));
        check("http://127.0.0.1:1/keys", "http://10.0.0.1/", Err("anyone on the way"));
    }
}
