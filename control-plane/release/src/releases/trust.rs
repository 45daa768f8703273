//! How far the documents of a revision are trusted. Its digest says it, so that a restart takes it for no more than it is.

/// What digests of revisions begin with that were never valid.
pub(super) const INVALID: &str = "invalid-";
/// The same, for those in which files are missing, too.
pub(super) const INCOMPLETE: &str = "incomplete-";

/// How much is known of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// They were admitted once. What only the review finds does not refuse them.
    Admitted,
    /// They never were.
    Never,
    /// They never were, and there are files beside them that could not be read: every request is refused.
    Incomplete,
}

/// How far a stored revision with this digest is trusted.
pub(super) fn trust_of(digest: &str) -> Trust {
    match digest {
        digest if digest.starts_with(INCOMPLETE) => Trust::Incomplete,
        digest if digest.starts_with(INVALID) => Trust::Never,
        _ => Trust::Admitted,
    }
}
