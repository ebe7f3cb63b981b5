"""Token bucket that limits how often a caller may act."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


class RateLimitExceeded(Exception):
    """Raised when a caller has no tokens left; `retry_after` is in seconds."""

    def __init__(self, caller: str, retry_after: float) -> None:
        super().__init__(f"{caller} has to wait {retry_after:.2f} s")
        self.caller = caller
        self.retry_after = retry_after


@dataclass
class TokenBucket:
    """A bucket that holds at most `capacity` tokens and gains `rate` of them per second.

    The bucket starts full, so a caller that was quiet may send a burst.
    """

    capacity: float
    rate: float
    clock: Callable[[], float] = time.monotonic
    tokens: float = field(init=False)
    filled_at: float = field(init=False)

    def __post_init__(self) -> None:
        if self.capacity <= 0 or self.rate <= 0:
            raise ValueError("capacity and rate must be positive")
        self.tokens = self.capacity
        self.filled_at = self.clock()

    def refill(self) -> None:
        """Add the tokens earned since the last call, without overflowing the bucket."""
        now = self.clock()
        earned = (now - self.filled_at) * self.rate
        self.tokens = min(self.capacity, self.tokens + earned)
        self.filled_at = now

    def wait_time(self, cost: float = 1.0) -> float:
        """Seconds until `cost` tokens are available; 0.0 when they already are."""
        self.refill()
        missing = cost - self.tokens
        return max(0.0, missing / self.rate)

    def take(self, cost: float = 1.0) -> bool:
        """Spend `cost` tokens if there are enough and say whether that worked."""
        self.refill()
        if self.tokens < cost:
            return False
        self.tokens -= cost
        return True


class RateLimiter:
    """One bucket per caller, safe to use from several threads."""

    def __init__(self, capacity: float, rate: float) -> None:
        self._capacity = capacity
        self._rate = rate
        self._buckets: dict[str, TokenBucket] = {}
        self._lock = threading.Lock()

    def check(self, caller: str, cost: float = 1.0) -> None:
        """Let the caller pass or raise `RateLimitExceeded`."""
        with self._lock:
            bucket = self._buckets.setdefault(caller, TokenBucket(self._capacity, self._rate))
            if not bucket.take(cost):
                raise RateLimitExceeded(caller, bucket.wait_time(cost))

    def forget_idle(self, seconds: float) -> int:
        """Drop buckets untouched for `seconds`, so that memory does not grow with one-time callers."""
        with self._lock:
            idle = [name for name, bucket in self._buckets.items() if bucket.clock() - bucket.filled_at > seconds]
            for name in idle:
                del self._buckets[name]
        return len(idle)
