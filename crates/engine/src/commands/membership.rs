//! Membership: what a datagram DTI listens to.

use sidecore_abi::{Command, Membership, MembershipChange, Status};
use sidecore_stack::{GroupChange, StackError};

use super::{Context, Done, slot};
use crate::dti::Role;

/// The only interface, as applications name it; 0 is the engine's choice.
const LINK: u16 = 1;

/// Membership.
pub(super) fn change(cx: &mut Context<'_>, command: &Command) -> Done {
    match execute(cx, command) {
        Ok(()) => Done::Quiet,
        Err(status) => status.into(),
    }
}

fn execute(cx: &mut Context<'_>, command: &Command) -> Result<(), Status> {
    let slot = slot(cx, command)?;
    let membership = Membership::from_body(command.body).ok_or(Status::Invalid)?;
    let id = match cx.tables.dtis.get(slot).map(|dti| &dti.role) {
        Some(Role::Datagram {
            socket: Some(id), ..
        }) => *id,
        _ => return Err(Status::WrongState),
    };
    let ours = membership.local.is_unspecified() || cx.stack.has_address(membership.local);
    if membership.interface > LINK || !ours {
        return Err(Status::AddressNotAvailable);
    }
    let change = translate(&membership).ok_or(Status::Invalid)?;
    let changed = cx.stack.udp_group(cx.now, id, membership.group, change);
    changed.map_err(|error| match error {
        StackError::InvalidAddress => Status::Invalid,
        error => super::socket::status_of(error),
    })
}

fn translate(membership: &Membership) -> Option<GroupChange> {
    let source = membership.source;
    Some(match membership.change {
        MembershipChange::Join => GroupChange::Join,
        MembershipChange::Leave => GroupChange::Leave,
        MembershipChange::JoinSource => GroupChange::JoinSource(source?),
        MembershipChange::LeaveSource => GroupChange::LeaveSource(source?),
        MembershipChange::BlockSource => GroupChange::Block(source?),
        MembershipChange::UnblockSource => GroupChange::Unblock(source?),
    })
}
