"""The record of every call, whatever interface it came through, and what can be read from it."""

from localmcp.activity.call_log import INTERFACES as INTERFACES
from localmcp.activity.call_log import Activity as Activity
from localmcp.activity.call_log import CallOrigin as CallOrigin
from localmcp.activity.call_log import LogEntry as LogEntry
from localmcp.activity.call_log import call_origin as call_origin
