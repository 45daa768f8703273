//! The store in memory, which ends with the process. Revisions that share a document share its memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Document, Draft, NodeRecord, Parent, Prepared, Revision, Store, StoreError, milliseconds};

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    revisions: BTreeMap<u64, (Revision, Documents)>,
    notes: BTreeMap<String, Vec<u8>>,
    nodes: BTreeMap<String, NodeRecord>,
}

/// Documents, sorted by file and line.
type Documents = Arc<[Arc<Document>]>;

impl Memory {
    /// Locks the state. A poisoned lock is ignored: every statement leaves it consistent.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn append(&self, draft: Draft, parent: Parent) -> Result<Revision, StoreError> {
        let mut kept = self.kept();
        let last = kept.revisions.last_key_value();
        let latest = last.map(|(number, _)| *number);
        if let Parent::Exactly(expected) = parent
            && expected != latest
        {
            return Err(StoreError::Conflict { expected, latest });
        }
        let Draft { digest, author, message, at, documents: Prepared { documents, .. } } = draft;
        let (number, count) = (latest.unwrap_or_default().saturating_add(1), documents.len());
        let documents = shared(documents, last.map_or(&[], |(_, (_, documents))| documents));
        let (at, purged) = (milliseconds(at), Vec::new());
        let revision = Revision { number, digest, author, message, at, parent: latest, documents: count, purged };
        kept.revisions.insert(number, (revision.clone(), documents));
        Ok(revision)
    }

    fn latest(&self) -> Result<Option<Revision>, StoreError> {
        Ok(self.kept().revisions.last_key_value().map(|(_, (revision, _))| revision.clone()))
    }

    fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError> {
        Ok(self.kept().revisions.get(&number).map(|(revision, _)| revision.clone()))
    }

    fn revisions(&self) -> Result<Vec<Revision>, StoreError> {
        Ok(self.kept().revisions.values().rev().map(|(revision, _)| revision.clone()).collect())
    }

    fn documents(&self, number: u64) -> Result<Option<Vec<Document>>, StoreError> {
        let documents = self.kept().revisions.get(&number).map(|(_, documents)| Arc::clone(documents));
        Ok(documents.map(|documents| documents.iter().map(|document| Document::clone(document)).collect()))
    }

    fn collect(&self, keep: usize, pinned: &BTreeSet<u64>) -> Result<Vec<u64>, StoreError> {
        let mut kept = self.kept();
        let old = kept.revisions.len().saturating_sub(keep.max(1));
        let gone: Vec<_> = kept.revisions.keys().take(old).filter(|number| !pinned.contains(number)).copied().collect();
        kept.revisions.retain(|number, _| !gone.contains(number));
        Ok(gone)
    }

    fn purge(&self, resource: &str, doomed: &dyn Fn(&[Document]) -> BTreeSet<usize>) -> Result<Vec<u64>, StoreError> {
        let mut purged = Vec::new();
        for (number, (revision, documents)) in &mut self.kept().revisions {
            let all: Vec<_> = documents.iter().map(|document| Document::clone(document)).collect();
            let doomed = doomed(&all);
            if !doomed.is_empty() {
                let left = documents.iter().enumerate().filter(|(index, _)| !doomed.contains(index));
                *documents = left.map(|(_, document)| Arc::clone(document)).collect();
                revision.purge(resource, documents.len());
                purged.push(*number);
            }
        }
        Ok(purged)
    }

    fn put_notes(&self, notes: &[(&str, Option<&[u8]>)]) -> Result<(), StoreError> {
        let mut kept = self.kept();
        for (name, value) in notes {
            match value {
                Some(value) => drop(kept.notes.insert((*name).to_owned(), value.to_vec())),
                None => drop(kept.notes.remove(*name)),
            }
        }
        Ok(())
    }

    fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.kept().notes.get(name).cloned())
    }

    fn put_nodes(&self, nodes: &BTreeMap<String, NodeRecord>) -> Result<(), StoreError> {
        self.kept().nodes.clone_from(nodes);
        Ok(())
    }

    fn nodes(&self) -> Result<BTreeMap<String, NodeRecord>, StoreError> {
        Ok(self.kept().nodes.clone())
    }
}

/// Reuses the documents of `earlier` that are equal. Both lists are sorted.
fn shared(documents: Vec<Document>, earlier: &[Arc<Document>]) -> Documents {
    let mut earlier = earlier.iter().peekable();
    let share = |document: Document| {
        while earlier.next_if(|known| ***known < document).is_some() {}
        earlier.next_if(|known| ***known == document).map_or_else(|| Arc::new(document), Arc::clone)
    };
    documents.into_iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn keeps_a_document_of_several_revisions_once() {
        let store = Memory::default();
        let document = |line: usize, text: &str| Document { file: "a".to_owned(), line, text: text.into() };
        let append = |documents: Vec<Document>| {
            let (digest, author, message) = (String::new(), String::new(), String::new());
            let draft = Draft { digest, author, message, at: SystemTime::UNIX_EPOCH, documents: documents.into() };
            let number = store.append(draft, Parent::Latest).unwrap().number;
            Arc::clone(&store.kept().revisions[&number].1)
        };
        let one = append(vec![document(1, "a"), document(2, "b"), document(3, "c")]);
        let two = append(vec![document(0, "x"), document(1, "a"), document(2, "other"), document(3, "c")]);
        assert!(Arc::ptr_eq(&one[0], &two[1]) && Arc::ptr_eq(&one[2], &two[3]));
        assert_eq!(two[2].text, b"other");
        assert_eq!(store.documents(2).unwrap().unwrap().len(), 4);
    }
}
