/** An error raised on purpose: its message says what to do, and is shown to the user as it is. */
export class PageError extends Error {}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
