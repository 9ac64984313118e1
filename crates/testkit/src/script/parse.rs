//! Reads events.

use super::Failure;
use super::lexer::Cursor;
use super::packets;
use super::syntax::{Action, Call, Event, Expr, When};

/// Reads all events that a text holds from here on.
pub(super) fn events(cursor: &mut Cursor<'_>) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    while !cursor.is_done() {
        let first = cursor.place().line;
        events.push(event(cursor).map_err(|mut failure| {
            failure.place.line = failure.place.line.max(first);
            failure
        })?);
    }
    Ok(events)
}

fn event(cursor: &mut Cursor<'_>) -> Result<Event, Failure> {
    let place = cursor.place();
    if cursor.sees("`") {
        return cursor.fail(
            "shell commands are not run here: what they set is set by --option=value lines before the first event",
        );
    }
    let when = when(cursor)?;
    let action = action(cursor)?;
    let ranged = !matches!(when, When::Relative(_) | When::Absolute(_));
    if ranged && !matches!(action, Action::Outbound(_)) {
        return Err(Failure::new(
            &place,
            "only outbound packets may come at any time, or within a range of times",
        ));
    }
    Ok(Event {
        place,
        when,
        action,
    })
}

fn when(cursor: &mut Cursor<'_>) -> Result<When, Failure> {
    if cursor.takes("*") {
        return Ok(When::Any);
    }
    let relative = cursor.takes("+");
    let from = cursor.seconds()?;
    if !cursor.takes("~") {
        let when = if relative {
            When::Relative
        } else {
            When::Absolute
        };
        return Ok(when(from));
    }
    if relative {
        cursor.expects("+")?;
    }
    let to = cursor.seconds()?;
    if to < from {
        return cursor.fail("a range of times that goes backwards");
    }
    let range = if relative {
        When::RelativeRange
    } else {
        When::AbsoluteRange
    };
    Ok(range(from, to))
}

fn action(cursor: &mut Cursor<'_>) -> Result<Action, Failure> {
    if cursor.takes("<") {
        let packet = packets::packet(cursor)?;
        packets::check_inbound(cursor, &packet)?;
        return Ok(Action::Inbound(packet));
    }
    if cursor.takes(">") {
        return Ok(Action::Outbound(packets::packet(cursor)?));
    }
    if cursor.takes("%{") {
        return Ok(Action::Code(cursor.until("}%")?.to_string()));
    }
    if cursor.sees("`") {
        return cursor.fail("shell commands are not run here");
    }
    Ok(Action::Call(call(cursor)?))
}

fn call(cursor: &mut Cursor<'_>) -> Result<Call, Failure> {
    let until = cursor.takes("...").then(|| cursor.seconds()).transpose()?;
    let name = cursor.word()?.to_string();
    cursor.expects("(")?;
    let args = list(cursor, ")")?;
    cursor.expects("=")?;
    let result = expression(cursor)?;
    let errno = match cursor.word_ahead() {
        word if word.starts_with('E') => Some(cursor.word()?.to_string()),
        _ => None,
    };
    // What strerror says, or what flags mean.
    if cursor.takes("(") {
        cursor.until(")")?;
    }
    Ok(Call {
        name,
        args,
        until,
        result,
        errno,
    })
}

/// Expressions with commas between, up to and with a closing mark.
fn list(cursor: &mut Cursor<'_>, end: &str) -> Result<Vec<Expr>, Failure> {
    let mut list = Vec::new();
    while !cursor.takes(end) {
        list.push(expression(cursor)?);
        if !cursor.sees(end) {
            cursor.expects(",")?;
        }
    }
    Ok(list)
}

fn expression(cursor: &mut Cursor<'_>) -> Result<Expr, Failure> {
    let first = simple(cursor)?;
    if !cursor.sees("|") {
        return Ok(first);
    }
    let mut all = vec![first];
    while cursor.takes("|") {
        all.push(simple(cursor)?);
    }
    Ok(Expr::Or(all))
}

fn simple(cursor: &mut Cursor<'_>) -> Result<Expr, Failure> {
    if cursor.takes("...") {
        return Ok(Expr::Ellipsis);
    }
    if cursor.takes("\"") {
        return Ok(Expr::Text(cursor.until("\"")?.to_string()));
    }
    if cursor.takes("[") {
        return Ok(Expr::List(list(cursor, "]")?));
    }
    if cursor.takes("{") {
        return structure(cursor);
    }
    if cursor
        .rest()
        .starts_with(|c: char| c == '-' || c.is_ascii_digit())
    {
        return Ok(Expr::Int(cursor.int()?));
    }
    let word = cursor.word()?.to_string();
    if cursor.takes("(") {
        return Ok(Expr::Apply(word, list(cursor, ")")?));
    }
    Ok(Expr::Word(word))
}

fn structure(cursor: &mut Cursor<'_>) -> Result<Expr, Failure> {
    let mut fields = Vec::new();
    while !cursor.takes("}") {
        let name = cursor.word()?.to_string();
        cursor.expects("=")?;
        fields.push((name, expression(cursor)?));
        if !cursor.sees("}") {
            cursor.expects(",")?;
        }
    }
    Ok(Expr::Struct(fields))
}
