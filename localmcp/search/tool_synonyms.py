"""Words that people use for one another when they ask for a tool: short forms, matters, and kinds of action."""

from __future__ import annotations

from functools import cache

from localmcp.text.normalize import stem

SHORT_FORMS: dict[str, str] = {
    "ac": "air conditioning",
    "addr": "address",
    "admin": "administrator",
    "ai": "artificial intelligence",
    "app": "application",
    "apps": "applications",
    "appt": "appointment",
    "args": "arguments",
    "auth": "authentication",
    "btc": "bitcoin",
    "ci": "build pipeline workflow",
    "cmd": "command",
    "config": "configuration",
    "cpu": "processor",
    "css": "stylesheet",
    "db": "database",
    "dbs": "databases",
    "deps": "dependencies",
    "dir": "directory",
    "dm": "direct message",
    "doc": "document",
    "docs": "documents",
    "dns": "domain name",
    "env": "environment",
    "gh": "github",
    "img": "image",
    "info": "information",
    "k8s": "kubernetes",
    "kb": "knowledge base",
    "lang": "language",
    "mr": "merge request",
    "msg": "message",
    "msgs": "messages",
    "org": "organization",
    "pic": "picture",
    "pics": "pictures",
    "pr": "pull request",
    "prs": "pull requests",
    "pwd": "password",
    "ram": "memory",
    "repo": "repository",
    "repos": "repositories",
    "svc": "service",
    "temp": "temperature",
    "todo": "task",
    "todos": "tasks",
    "tv": "television",
    "vid": "video",
    "vm": "virtual machine",
    "vms": "virtual machines",
}
"""Short form -> what is written out before the sentence is compared."""

_MATTERS = """
agenda appointment appointments calendar event events meeting meetings schedule
archive compress zip tar unzip unpack extract decompress
audio sound song music mp3 wav track tracks
balance account money bank
bill invoice invoicing billing
bill cost costs spend spending expense expenses charge
blind blinds cover curtain shutter shade
booking reservation reserve book
bookmark star favourite favorite
bot agent
bug issue issues defect ticket error
build pipeline workflow ci check checks
buy purchase order
car vehicle driving drive
channel room
chart graph plot diagram
chat message messages conversation
clean hoover vacuum
client customer customers
clone copy duplicate fork
comment remark note reply
compare diff difference
computer machine server host instance vm
contact contacts person people address book
cost price prices fee
crash crashed error failure exception fail failed
currency dollars dollar euros euro pounds money exchange
dashboard board
database sql postgres mysql sqlite
date day
deal opportunity sale sales
deploy deployment release rollout
device gadget
directory folder folders directories
directions route way navigate navigation
disk drive storage space
doc document documents page
domain dns hostname
duty call oncall shift
draw paint sketch generate illustrate
email e-mail mail emails inbox mailbox gmail message
entity node
error exception traceback stack
excel spreadsheet workbook sheet worksheet
film movie video clip
find search look locate
flight plane airline fly
food meal eat ate calories
forecast weather rain snow sunny temperature
form survey questionnaire poll
heating heater thermostat climate temperature warm radiator
height elevation altitude
hide conceal
history log past
hotel room accommodation stay
image picture photo photograph photos pictures images
incident outage alert alarm
invite invitation guest guests attendee
key secret credential password token
lamp light bulb
language translate translation translator
letter mail
link url
location place address position coordinates
log logs output
louder volume quieter loud quiet
memo note notes
memory ram
merge combine join unite
model network
monitor metrics monitoring
music song songs play playback
news headlines headline article articles
node server
notification alert reminder
package parcel shipment delivery
pause stop halt
payment pay transaction transactions
pdf document
phone telephone call number
picture screenshot snapshot
process program task
project repository
question query
recurring subscription subscriptions
remind reminder alarm
repository repo project
restaurant cafe food eat
reverse undo revert rollback
robot vacuum
schedule plan calendar
script program code
server host
share stock shares stocks ticker
shell terminal console command bash
shop store shopping
sleep slept night bed
slow performance speed
sms text
steps walk walked
story ticket
subtitles transcript captions
talk speak say said speech
task tasks todo chore
team group
terminal console shell
text words
thread conversation
time clock hour
train railway station departure
trash bin delete
trip travel journey
tweet post
user account profile member
vacation holiday
version revision release tag
video youtube clip
virtual machine ec2 instance
web internet online website site google
website page site webpage
weight kilograms kilos
window door sensor
word docx
open navigate visit browse
complete completed done finish finished tick resolve resolved
assign give hand delegate
clipboard copied copy paste
print printing output
local nearby near around localhost
graph metrics chart
usage use utilization consumption
silence mute unmute
brightness dim bright
restart reboot reload
approve approval accept review
decline reject refuse
free available availability slot slots
latest last recent newest
big large size
postpone snooze delay defer
reply answer respond response
permission permissions rights access
run execute invoke
upload attach
pick choose select
crop cut trim
summary summarize overview digest
attendee guest invitee participant participants guests attendees
author blame wrote written
away vacation absent
back refund return returned
backup dump copy
bigger smaller resize scale shrink enlarge
browser web page
capture screenshot picture snapshot
change changed changes modified edits diff
click press tap push
cleanup prune unused old
cluster kubernetes
coins money change
colleague coworker coworkers member members people team user users
column columns field fields structure schema
cook recipe
daily diary journal today
distance far route directions
door lock doorbell
draft unsent
emoji reaction reactions thumbs smiley
enter type fill input
entry entries record records row rows
everyone channel group team
exposed leak leaked secret
fail failed failing broken red
file document attachment
flat apartment
going happening
hang hung frozen stuck
house home
instance instances copies replicas
internal private
job jobs task run
junk spam
kids children
label tag category folder
launch start spin
learn remember memorize
left remaining
letters characters text
memo note notes
mode scene
mum dad call phone
next upcoming following skip
objects files
outside weather
participant member
past previous earlier history
picture diagram drawing
possible available
previous earlier revision version older
purchase purchases transaction transactions spent
quote price ticker
rain wet umbrella weather
recipient to
resource resources memory cpu processor
revenue income sales
road traffic route
room area
scan scanned ocr
score rating
server service services
sick health doctor
sign signature
signup register registration
simplify shorten
slides presentation deck powerpoint
speak talk call
spelling typo
staff employee employees
standup meeting sync
storm warning alert
stuff things items
subject title
table tables
timer stopwatch
topic subject
undo revert reset rollback unstage
unread new
warn warning alert
watch monitor
way directions route
who author owner assignee person
wipe erase
workout exercise training
yaml manifest
"""
"""One matter a line; words are compared by their English stem, and may stand on several lines."""

ACTIONS: dict[str, str] = {
    "read": """get read show list view display fetch open see tell check describe inspect print retrieve what which who
        where when how why is are did does look explain status count watch monitor preview browse""",
    "find": "find search look locate query lookup discover where google",
    "create": """create make add new build write generate draft open insert compose draw log save store jot note record
        register set append""",
    "delete": """delete remove erase drop discard trash purge destroy throw clear wipe prune cancel uninstall kill
        dump bin""",
    "change": """update edit change modify set rename move put replace adjust assign configure turn mark convert switch
        transition resize apply patch merge make rewrite correct fix raise lower increase decrease shrink enlarge shift
        tick reschedule postpone""",
    "send": """send post message reply tell share publish upload email mail forward write text submit notify answer say
        respond drop""",
    "start": """start run launch play open turn switch enable execute begin up resume restart invoke call trigger put
        kick""",
    "stop": "stop pause end close kill quit disable turn switch shut halt off cancel lock block abort terminate",
    "receive": "download pull fetch save export receive import clone grab",
    "travel": "book reserve buy order rent pay sign apply hire transfer",
}
"""Kind of action -> the verbs and question words that ask for it; a verb may ask for several kinds."""


@cache
def synonyms() -> dict[str, frozenset[str]]:
    """English stem -> the stems of the words that share a matter with it."""
    found: dict[str, set[str]] = {}
    for line in _MATTERS.strip().splitlines():
        group = {stem(word, "english") for word in line.split()}
        for each in group:
            found.setdefault(each, set()).update(group - {each})
    return {word: frozenset(others) for word, others in found.items()}


@cache
def _actions_by_stem() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for kind, verbs in ACTIONS.items():
        for verb in verbs.split():
            found.setdefault(stem(verb, "english"), set()).add(kind)
    return {verb: frozenset(kinds) for verb, kinds in found.items()}


def actions_of(stemmed: str) -> frozenset[str]:
    """The kinds of action that a stem asks for; empty for a word that is no verb of the table."""
    return _actions_by_stem().get(stemmed, frozenset())
