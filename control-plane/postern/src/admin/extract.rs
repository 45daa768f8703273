//! Extractors and responses of handlers: parts of a request, rejected with a problem document if they are malformed,
//! and answers as JSON or YAML.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use postern_base::yaml::to_yaml;
use postern_release::{releases::ApplyError, store::Parent};
use serde::{Serialize, de::DeserializeOwned};

use super::problem::Problem;

/// The parameters in the path.
pub(super) struct Named<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(value) = Path::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Problem::new(rejection.status(), "invalid request", rejection.body_text()))?;
        Ok(Self(value))
    }
}

/// The parameters in the query.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(value) = Query::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Problem::new(rejection.status(), "invalid request", rejection.body_text()))?;
        Ok(Self(value))
    }
}

/// The JSON body.
pub(super) struct Sent<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Sent<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let Json(value) = Json::from_request(request, state)
            .await
            .map_err(|rejection| Problem::new(rejection.status(), "invalid request", rejection.body_text()))?;
        Ok(Self(value))
    }
}

/// The revision that a change must follow. `If-Match: "7"`: revision 7 must be the latest; `"0"`: there must be none.
pub(super) struct Follows(pub(super) Parent);

/// The header and its description for the API's document.
pub(super) const IF_MATCH: (&str, &str) = (
    "If-Match",
    "The number of the latest revision in quotes, such as `\"7\"`: the change is refused if another came in between.",
);

impl<S: Send + Sync> FromRequestParts<S> for Follows {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else { return Ok(Self(Parent::Latest)) };
        let number = value.to_str().ok().and_then(|text| text.trim_matches('"').parse::<u64>().ok());
        match number {
            Some(number) => Ok(Self(Parent::Exactly((number > 0).then_some(number)))),
            None => {
                let detail = "`If-Match` must be the number of a revision in quotes, such as \"7\"".to_owned();
                Err(Problem::new(StatusCode::BAD_REQUEST, "invalid request", detail))
            }
        }
    }
}

/// The format of an answer, by the request's `Accept` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Yaml,
}

impl Form {
    /// YAML if `Accept` names it before JSON, else JSON.
    fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let first = accepted.flat_map(|value| value.split(',')).find_map(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            match kind.rsplit(['/', '+', '-']).next() {
                Some("json") => Some(Self::Json),
                Some("yaml") => Some(Self::Yaml),
                _ => None,
            }
        });
        first.unwrap_or(Self::Json)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Form {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::of(&parts.headers))
    }
}

/// An answer in the requested format.
pub(super) struct Shown<T>(pub(super) Form, pub(super) T);

impl<T: Serialize> IntoResponse for Shown<T> {
    fn into_response(self) -> Response {
        match self.0 {
            Form::Json => Json(self.1).into_response(),
            Form::Yaml => match serde_json::to_value(&self.1) {
                Ok(value) => ([(header::CONTENT_TYPE, "application/yaml")], to_yaml(&value)).into_response(),
                Err(error) => Problem::internal(&error).into_response(),
            },
        }
    }
}

/// Runs work that blocks or is slow on a thread where it delays no other request.
pub(super) async fn on_a_thread<T: Send + 'static, E>(
    act: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Problem>
where
    E: Into<Problem> + Send + 'static,
{
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => result.map_err(Into::into),
        Err(error) => Err(Problem::internal(&error)),
    }
}

/// Like [`on_a_thread`], for work whose error is that of a proposal.
pub(super) async fn read<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ApplyError> + Send + 'static,
) -> Result<T, Problem> {
    on_a_thread(act).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_in_the_form_that_is_named_first() {
        let check = |accept: &'static str, expect: Form| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(Form::of(&headers), expect, "for `{accept}`");
        };
        check("application/yaml", Form::Yaml);
        check("text/yaml;q=0.9, application/json", Form::Yaml);
        check("application/x-yaml", Form::Yaml);
        check("application/json, application/yaml", Form::Json);
        check("*/*", Form::Json);
        check("text/html", Form::Json);
    }
}
