//! What happens around fork. The child shares no memory of the UAL with its parent: it begins anew, and opens its own at first use.

use crate::guard::{self, Stay};
use crate::{process, sys};

/// Asks the system to be told of forks.
pub(crate) fn install() {
    let _stay = Stay::begin();
    sys::at_fork(before, parent, child);
}

extern "C" fn before() {}

extern "C" fn parent() {}

extern "C" fn child() {
    guard::within((), || {
        let Some(old) = process::renew() else {
            return;
        };
        // The parent's link to the agent is its sign of life: the child must not keep it up.
        for fd in old.all_kept() {
            sys::close(fd);
        }
    });
}
