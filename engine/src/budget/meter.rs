//! Counts what is really done, apart from what is charged for it, so that tests can compare the two: work that nobody was
//! charged for is a hole in the budget. A unit of work is never dearer than a step.

use std::cell::Cell;

thread_local! {
    static ACCOUNT: Cell<Account> = const { Cell::new(Account { work: 0, spent: 0, declared: 0 }) };
}

/// What all budgets of a thread together were charged, and what was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Nodes of expressions, bytes of texts, values of documents: what was looked at, in units no dearer than a step.
    pub work: u64,
    /// The steps that were taken, declared ones among them.
    pub spent: u64,
    /// Those that policies declare.
    pub declared: u64,
}

/// What was counted on this thread since this was last asked.
pub fn take() -> Account {
    ACCOUNT.take()
}

fn count(change: impl FnOnce(&mut Account)) {
    let mut account = ACCOUNT.get();
    change(&mut account);
    ACCOUNT.set(account);
}

pub(crate) fn work(units: usize) {
    count(|account| account.work = account.work.saturating_add(super::steps(units)));
}

pub(crate) fn spend(steps: u64) {
    count(|account| account.spent = account.spent.saturating_add(steps));
}

pub(crate) fn declare(steps: u64) {
    spend(steps);
    count(|account| account.declared = account.declared.saturating_add(steps));
}
