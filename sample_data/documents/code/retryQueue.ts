/**
 * A queue that repeats failed jobs with growing pauses and gives up after a limit.
 */

export interface Job<T> {
  id: string;
  payload: T;
  attempts: number;
  notBefore: number;
}

export interface RetryOptions {
  /** Pause after the first failure, in milliseconds. */
  baseDelay: number;
  /** No pause is longer than this, in milliseconds. */
  maxDelay: number;
  /** After so many failures a job goes to the dead letter list. */
  maxAttempts: number;
}

export const defaultOptions: RetryOptions = {
  baseDelay: 250,
  maxDelay: 60_000,
  maxAttempts: 8,
};

/**
 * Exponential backoff with full jitter: a random pause between zero and the doubled delay.
 * Randomness keeps clients that failed together from coming back together.
 */
export function backoffDelay(attempt: number, options: RetryOptions, random = Math.random): number {
  const ceiling = Math.min(options.maxDelay, options.baseDelay * 2 ** attempt);
  return Math.floor(random() * ceiling);
}

/** Errors that will not go away by trying again. */
export function isPermanent(status: number): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
}

export class RetryQueue<T> {
  private readonly waiting: Job<T>[] = [];
  readonly deadLetters: Job<T>[] = [];

  constructor(
    private readonly send: (payload: T) => Promise<number>,
    private readonly options: RetryOptions = defaultOptions,
    private readonly now: () => number = Date.now,
  ) {}

  enqueue(id: string, payload: T): void {
    if (this.waiting.some((job) => job.id === id)) {
      throw new Error(`job ${id} is already waiting`);
    }
    this.waiting.push({ id, payload, attempts: 0, notBefore: this.now() });
  }

  /** Runs every job that is due and returns how many succeeded. */
  async drain(): Promise<number> {
    const due = this.waiting.filter((job) => job.notBefore <= this.now());
    let succeeded = 0;
    for (const job of due) {
      const status = await this.send(job.payload);
      if (status < 400) {
        this.remove(job);
        succeeded += 1;
      } else {
        this.postpone(job, status);
      }
    }
    return succeeded;
  }

  private postpone(job: Job<T>, status: number): void {
    job.attempts += 1;
    if (isPermanent(status) || job.attempts >= this.options.maxAttempts) {
      this.remove(job);
      this.deadLetters.push(job);
      return;
    }
    job.notBefore = this.now() + backoffDelay(job.attempts, this.options);
  }

  private remove(job: Job<T>): void {
    const index = this.waiting.indexOf(job);
    if (index >= 0) this.waiting.splice(index, 1);
  }
}
